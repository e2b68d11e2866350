//! Files: the built-in profiles, profile files beside a configuration, and what cannot be read.

use std::fs;
use std::path::PathBuf;

use model::{
    AclAction, Config, IpVersion, MissPolicy, Offload, PortKind, PortRange, Profile, Protocol, Span, TABLES,
};

/// A directory of the test's own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("softdpu-model-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("the directory for temporary files is writable");
        Dir(dir)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("writes");
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn words(result: Result<Config, Vec<model::ConfigError>>, dir: &Dir) -> Vec<String> {
    let dir = format!("{}/", dir.0.display());
    result
        .expect_err("invalid")
        .iter()
        .map(|e| format!("{} {}", e.kind, e.to_string().replace(&dir, "")))
        .collect()
}

#[test]
fn a_whole_configuration_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/two-tenants.toml");
    let Config { desired, profile, warnings } = Config::load(path.as_ref()).expect("valid");
    assert_eq!(warnings, []);
    assert_eq!((profile.name.as_str(), desired.device.workers), ("unlimited", 2));
    assert_eq!(desired.device.miss_policy, MissPolicy::Fallback);
    let [blue_1, blue_2, red_1] = &desired.ports[..] else { panic!("three ports") };
    assert_eq!((blue_1.kind, blue_1.interface.as_str(), blue_1.mtu), (PortKind::Tap, "blue-1", 1500));
    assert_eq!(
        (blue_2.kind, blue_2.interface.as_str(), blue_2.mtu),
        (PortKind::AfPacket, "veth-blue-2", 9000)
    );
    assert_eq!(red_1.kind, PortKind::Memory);
    let eni = desired.eni("blue-2").expect("there");
    assert_eq!(eni.mac_address.to_string(), "02:00:00:00:01:02");
    assert!(!eni.anti_spoof && desired.enis[0].anti_spoof);
    let Span { line, column } = desired.enis[0].acl_out[0].span;
    assert_eq!((line, column), (39, 3));
    assert_eq!(desired.enis[0].acl_in[0].stage, 3);
    let group = desired.acl_group("blue-out").expect("there");
    assert_eq!(group.ip_version, IpVersion::Ipv4);
    let rule = &group.rules[0];
    assert_eq!(
        (rule.action, rule.terminating, rule.offload),
        (AclAction::Allow, true, Offload::HardwareOnly)
    );
    assert_eq!(rule.protocol, [Protocol::TCP, Protocol::UDP]);
    let range = |first, last| PortRange::new(first, last).expect("in order");
    assert_eq!(rule.src_port, [range(1000, 2000), range(53, 53), range(67, 67)]);
    assert_eq!(rule.dst_port, [range(80, 80)]);
    assert!(rule.dst_addr.is_empty() && !group.rules[1].terminating);
    assert_eq!(desired.vnet("red").expect("there").vni, 200);
    assert_eq!(desired.routes[1].vnet, None);
    assert_eq!(desired.vnet_mappings[0].eni, "blue-2");
}

#[test]
fn built_in_profiles_are_valid_and_named_as_they_are_called() {
    for (name, text) in Profile::BUILT_IN {
        let profile = Profile::parse(text, name).expect("valid");
        assert_eq!(profile.name, name);
        assert_eq!(Profile::built_in(name), Some(profile));
    }
    assert_eq!(Profile::built_in("huge"), None);
    let unlimited = Profile::built_in("unlimited").expect("there");
    let tiny = Profile::built_in("tiny").expect("there");
    for table in TABLES {
        assert_eq!(unlimited.limit(table), None);
        assert!(tiny.limit(table).is_some_and(|limit| limit <= 64), "{table}");
    }
    assert_eq!(unlimited.insert_rate, 0);
}

#[test]
fn the_schema_of_tables_is_that_of_profiles() {
    let header = "[tables]";
    let object = model::schema::describe().iter().find(|o| o.header == header).expect("there");
    let keys: Vec<_> = object.keys.iter().map(|k| k.name).collect();
    assert_eq!(keys, TABLES);
}

#[test]
fn a_profile_file_is_read_relative_to_the_configuration() {
    let dir = Dir::new("relative");
    let config = dir.file("c.toml", "schema = 1\ndevice.profile = \"mine.toml\"\n");
    dir.file("mine.toml", "schema = 1\nname = \"mine\"\ninsert_rate = 100\n[tables]\nacl = 0\nflow = 7\n");
    let profile = Config::load(&config).expect("valid").profile;
    assert_eq!((profile.insert_rate, profile.queue), (100, 4096));
    assert_eq!(
        (profile.limit("acl"), profile.limit("flow"), profile.limit("route")),
        (Some(0), Some(7), None)
    );

    // Its errors come after those of the configuration.
    let config = dir.file("c.toml", "schema = 1\nports = 1\ndevice.profile = \"./mine.toml\"\n");
    dir.file("mine.toml", "schema = 1\nqueue = 0\n[tables]\nroutes = 1\nflow = -1\n");
    assert_eq!(
        words(Config::load(&config), &dir),
        [
            "unknown_key c.toml:2:1: unknown key \"ports\" at the top level; expected one of schema, device, port, vnet, \
             eni, acl_group, route, vnet_mapping; did you mean \"port\"?",
            "missing_key ./mine.toml:1:1: missing key \"name\" at the top level; expected a name: 1 to 64 letters, \
             digits or any of -_.:",
            "invalid_value ./mine.toml:2:9: \"queue\" is 0; expected an integer from 1 to 1048576",
            "unknown_key ./mine.toml:4:1: unknown key \"routes\" in [tables]; expected one of eni, source, acl, route, \
             mapping, flow; did you mean \"route\"?",
            "invalid_value ./mine.toml:5:8: \"flow\" is -1; expected an integer from 0 to 4294967295",
        ]
    );
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = Dir::new("unreadable");
    let absent = "cannot read the file: No such file or directory (os error 2)";
    assert_eq!(
        words(Config::load(&dir.0.join("absent.toml")), &dir),
        [format!("unreadable absent.toml: {absent}")]
    );
    let config = dir.file("c.toml", "schema = 1\ndevice.profile = \"absent.toml\"\n");
    assert_eq!(words(Config::load(&config), &dir), [format!("unreadable absent.toml: {absent}")]);
    let binary = dir.file("binary.toml", b"schema = 1\n# \xff\n");
    assert_eq!(words(Config::load(&binary), &dir), ["unreadable binary.toml:2:3: not UTF-8 text"]);
}

#[test]
fn text_that_was_in_a_file_finds_its_profile_beside_that_file() {
    let folder = std::env::temp_dir().join(format!("softdpu-parse-at-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("small.toml"), "schema = 1\nname = \"small\"\n[tables]\nacl = 3\n").unwrap();
    let text = "schema = 1\n[device]\nprofile = \"small.toml\"\n";
    let config = model::Config::parse_at(text, &folder.join("device.toml")).unwrap();
    assert_eq!(config.profile.limit("acl"), Some(3));
    std::fs::remove_dir_all(&folder).unwrap();
}
