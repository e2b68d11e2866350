//! What cannot work is refused in a line, and nothing is half done.

use crate::daemon::{BASE, Daemon, PROGRAM, Place, assert_nothing_left};
use crate::hosts;
use crate::{Case, SKIPPED, in_lab, with_taps};
use rustix::process::{Signal, geteuid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

pub const CASES: &[Case] = &[
    ("wrong_configurations", wrong_configurations),
    ("wrong_words", wrong_words),
    ("wrong_surroundings", wrong_surroundings),
    ("no_privilege", no_privilege),
    ("nobody_answers", nobody_answers),
    ("second_daemon", second_daemon),
];

fn wrong_configurations() -> i32 {
    in_lab("config", |lab| {
        let place = Place::new(&lab);
        let line = |text: &str| BASE.lines().position(|l| l == text).expect("a line of it") + 1;
        let (first_port, b_routes) = (line("name = \"a\""), line("eni = \"b\""));
        let rows: [(&str, String, Vec<String>); 6] = [
            (
                "an unknown key, and the nearest",
                BASE.replacen("name = \"a\"", "nmae = \"a\"", 1),
                vec![
                    format!("c.toml:{first_port}:1: unknown key \"nmae\" in [[port]]"),
                    "did you mean \"name\"?".into(),
                ],
            ),
            (
                "an unknown word, and the nearest",
                BASE.replacen("kind = \"tap\"", "kind = \"tab\"", 1),
                vec![format!("c.toml:{}:8: ", first_port + 1), "did you mean \"tap\"?".into()],
            ),
            (
                "a route of an unknown ENI",
                BASE.replacen("eni = \"b\"", "eni = \"bb\"", 1),
                vec![format!("c.toml:{b_routes}:7: "), "\"bb\"".into(), "did you mean \"b\"?".into()],
            ),
            (
                "two ENIs with one address in one VNET",
                BASE.replace("\"10.0.0.2\", ", "\"10.0.0.1\", "),
                vec!["10.0.0.1".into(), "ENI \"a\"".into(), "same VNET \"blue\"".into()],
            ),
            (
                "an MTU below 1280 with IPv6",
                BASE.replacen("kind = \"tap\"", "kind = \"tap\"\nmtu = 1000", 1),
                vec!["1280".into(), "IPv6".into()],
            ),
            ("no TOML at all", "schema = = 1\n".into(), vec!["c.toml:1:10: ".into()]),
        ];
        for (what, text, words) in rows {
            place.config("c.toml", &text);
            for command in ["run -c c.toml --state-dir state", "apply -f c.toml"] {
                let ended = place.say(command);
                assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{what}: {ended:?}");
                for word in &words {
                    assert!(ended.err.contains(word), "{what}: {word:?} in {}", ended.err);
                }
            }
            assert!(!place.run_dir().exists() && !place.state_dir().exists(), "{what}: nothing is made");
        }

        let several =
            BASE.replacen("kind = \"tap\"", "kind = \"tab\"", 1).replace("vni = 100", "vni = 99999999");
        place.config("c.toml", &several);
        let ended = place.run("c.toml");
        assert_eq!((ended.status, ended.err.lines().count()), (2, 2), "all errors at once: {}", ended.err);

        let unreadable = place.run("none.toml").line(2);
        assert_eq!(unreadable, "none.toml: cannot read the file: No such file or directory (os error 2)");
        assert_nothing_left(&lab, &place, &["lo"]);
    })
}

fn wrong_words() -> i32 {
    in_lab("words", |lab| {
        let place = Place::new(&lab);
        for words in [
            "nonsense",
            "run",
            "rule list extra",
            "status -o xml",
            "trace tcp 10.0.0.1:1 > 10.0.0.2:2",
            "reset --scope everything",
            "flow list --limit many",
        ] {
            let ended = place.say(words);
            assert_eq!((ended.status, ended.out.as_str()), (2, ""), "{words}: {ended:?}");
            assert!(ended.err.contains("--help"), "{words}: {}", ended.err);
        }
        let alone = place.softdpu(&[]).ok();
        assert!(alone.starts_with("What to do first:") && alone.contains("softdpu lab run"), "{alone}");
    })
}

fn wrong_surroundings() -> i32 {
    with_taps("surroundings", |lab| {
        let place = Place::new(&lab);
        place.config("tap.toml", BASE);
        place.config("veth.toml", &hosts::config());
        place.config("memory.toml", &BASE.replace("\"tap\"", "\"memory\""));
        place.config("file", "");
        let run = |words: &str| place.say(&format!("run {words}")).line(1);

        let line = run("-c veth.toml --state-dir state");
        assert!(line.starts_with("no such interface: a"), "{line}");
        assert_nothing_left(&lab, &place, &["lo"]);

        let line = run("-c memory.toml --state-dir state");
        assert!(line.starts_with("port a: a memory port"), "{line}");
        assert_nothing_left(&lab, &place, &["lo"]);

        let half = BASE.replace("name = \"b\"\nkind = \"tap\"", "name = \"b\"\nkind = \"af_packet\"");
        place.config("half.toml", &half);
        let line = run("-c half.toml --state-dir state");
        assert!(line.starts_with("no such interface: b"), "{line}");
        assert_nothing_left(&lab, &place, &["lo"]);

        let line = run("-c tap.toml --state-dir state --run-dir file");
        assert_eq!(line, "file: cannot be made: File exists (os error 17)");
        let line = run("-c tap.toml --state-dir file/state");
        assert_eq!(line, "file/state: cannot be made: Not a directory (os error 20)");
        assert_nothing_left(&lab, &place, &["lo"]);

        fs::write(place.state_dir().join("controller.redb"), [0x5a; 8192]).expect("write");
        let line = run("-c tap.toml --state-dir state");
        assert!(line.starts_with("state/controller.redb: not a store, or damaged"), "{line}");
        assert!(line.ends_with("move it away to start with an empty one"), "{line}");
        assert_nothing_left(&lab, &place, &["lo"]);

        fs::remove_file(place.state_dir().join("controller.redb")).expect("remove");
        fs::create_dir(place.state_dir().join("controller.redb")).expect("directory");
        let line = run("-c tap.toml --state-dir state");
        assert!(line.starts_with("state/controller.redb: "), "{line}");
        assert_nothing_left(&lab, &place, &["lo"]);
    })
}

/// As root by another user's rights in a laboratory; an ordinary user tries it as it is.
fn no_privilege() -> i32 {
    let unprivileged = || {
        let dir = std::env::temp_dir().join(format!("softdpu-cli-{}", std::process::id()));
        fs::create_dir(&dir).expect("directory");
        fs::set_permissions(&dir, Permissions::from_mode(0o777)).expect("rights");
        // The build's folder may be closed to others.
        fs::copy(PROGRAM, dir.join("softdpu")).expect("copy the program");
        fs::set_permissions(dir.join("softdpu"), Permissions::from_mode(0o755)).expect("rights");
        // Names that no interface has, should the kernel allow it after all.
        let config = BASE.replace("kind = \"tap\"", "kind = \"tap\"\ninterface = \"\"");
        let config = ["sdpu-np0", "sdpu-np1"]
            .iter()
            .fold(config, |c, name| c.replacen("interface = \"\"", &format!("interface = \"{name}\""), 1));
        fs::write(dir.join("c.toml"), config).expect("write");
        let mut command = Command::new(dir.join("softdpu"));
        command.args(["run", "-c", "c.toml", "--run-dir", "run", "--state-dir", "state"]);
        command.current_dir(&dir).stdin(Stdio::null());
        if geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let ended = crate::daemon::Ended::from(command.output().expect("run softdpu"));
        let links = fs::read_to_string("/proc/net/dev").expect("links");
        fs::remove_dir_all(&dir).expect("remove");
        let line = ended.line(1);
        let named = line.starts_with("sdpu-np0: not permitted")
            || line.starts_with("sdpu-np0: cannot open /dev/net/tun");
        assert!(named, "{line}");
        assert!(!links.contains("sdpu-np"), "{links}");
    };
    if std::env::var_os("SOFTDPU_TEST_USER_NAMESPACE").is_some() {
        println!("no_privilege: skipped: a user namespace has one user only");
        return SKIPPED;
    }
    if geteuid().is_root() {
        return in_lab("privilege", |_| unprivileged());
    }
    unprivileged();
    0
}

fn nobody_answers() -> i32 {
    in_lab("nobody", |lab| {
        let place = Place::new(&lab);
        place.config("c.toml", BASE);
        let rows = [
            ("device", "status"),
            ("device", "port list"),
            ("device", "port show a"),
            ("device", "flow list"),
            ("device", "drops"),
            ("device", "trace --port a icmp 10.0.0.1 > 10.0.0.2"),
            ("device", "apply -f c.toml"),
            ("controller", "rule list"),
            ("controller", "rule show eni/a"),
            ("controller", "rule explain eni/a"),
            ("controller", "rule prove eni/a"),
            ("controller", "diff"),
            ("controller", "reset --scope warm"),
        ];
        for (who, words) in rows {
            let line = place.say(words).line(1);
            assert!(line.starts_with(&format!("no {who} answers at ")), "{words}: {line}");
            assert!(line.contains("softdpu run -c FILE"), "{words}: {line}");
        }
        let line = place.say("stop").line(1);
        assert_eq!(line, format!("nothing runs in {}", place.run_dir().display()));
        let line = place.say("status --lab=none-of-this-name").line(1);
        assert!(line.contains("none-of-this-name"), "{line}");
    })
}

fn second_daemon() -> i32 {
    with_taps("second", |lab| {
        let place = Place::new(&lab);
        let first = Daemon::start(&place, BASE);
        let before = (place.pid("supervisor"), place.pid("device"), place.pid("controller"));
        let links = ["lo", "a", "b"];

        let line = place.run("config.toml").line(1);
        let pid = before.0.as_raw_nonzero();
        assert!(
            line.starts_with("a supervisor is running in ") && line.contains(&format!("(process {pid})")),
            "{line}"
        );
        assert!(line.contains("softdpu stop"), "{line}");

        // In a directory of its own it has no interface, and if it had, no store.
        let line = place.say("run -c config.toml --run-dir other --state-dir other-state").line(1);
        assert!(line.starts_with("a: in use by another process"), "{line}");
        let apart = BASE.replacen("kind = \"tap\"", "kind = \"tap\"\ninterface = \"c\"", 1);
        place.config(
            "apart.toml",
            &apart.replace("name = \"b\"\nkind = \"tap\"", "name = \"b\"\nkind = \"tap\"\ninterface = \"d\""),
        );
        let line = place.say("run -c apart.toml --run-dir other --state-dir state").line(1);
        assert!(line.starts_with("state/controller.redb: "), "{line}");
        assert!(line.contains("another process"), "{line}");

        assert_eq!((place.pid("supervisor"), place.pid("device"), place.pid("controller")), before);
        assert_eq!(place.say("diff").status, 0, "the first is untouched");
        let mut netlink = lab.dpu().expect("dpu").netlink().expect("netlink");
        let names: Vec<String> = netlink.links().expect("links").into_iter().map(|l| l.name).collect();
        assert_eq!(names, links);
        assert_eq!(first.err(), "");
        assert_eq!(first.end(Signal::TERM), 0);
        assert_nothing_left(&lab, &place, &["lo"]);
    })
}
