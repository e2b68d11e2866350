//! What desired state compiles to.

use contract::FieldMatch;
use contract::schema::vnet;
use control::{CompileError, Compiled, Draft, Numbering, compile};
use model::Config;
use std::net::IpAddr;

struct Fixed;

impl Numbering for Fixed {
    fn eni(&mut self, name: &str) -> Result<u16, CompileError> {
        Ok(if name == "a" { 1 } else { 2 })
    }

    fn group(&mut self, name: &str) -> Result<u32, CompileError> {
        Ok(if name.ends_with('2') { 12 } else { 11 })
    }
}

const BASE: &str = r#"schema = 1
[[port]]
name = "pa"
kind = "memory"
[[port]]
name = "pb"
kind = "memory"
[[vnet]]
name = "blue"
vni = 100
[[eni]]
name = "a"
port = "pa"
vnet = "blue"
mac_address = "02:00:00:00:01:0a"
addresses = ["10.0.0.100", "fd00::100"]
[[eni.acl_out]]
stage = 1
v4_acl_group_id = "level-1"
[[eni.acl_out]]
stage = 2
v4_acl_group_id = "level-2"
[[eni]]
name = "b"
port = "pb"
vnet = "blue"
mac_address = "02:00:00:00:01:0b"
addresses = ["10.0.0.200"]
anti_spoof = false
"#;

fn compiled(more: &str) -> Compiled {
    try_compile(more).unwrap()
}

fn try_compile(more: &str) -> Result<Compiled, CompileError> {
    let mut text = BASE.to_owned() + more;
    for level in ["level-1", "level-2"] {
        if !text.contains(&format!("acl_group_id = \"{level}\"\nip_version")) {
            text += &format!("[[acl_group]]\nacl_group_id = \"{level}\"\nip_version = \"ipv4\"\n");
        }
    }
    let config = Config::parse(&text, "test.toml").unwrap_or_else(|e| panic!("{e:?}"));
    // The device's order of ports, not the file's.
    compile(&config.desired, &["pb".to_owned(), "pa".to_owned()], &mut Fixed)
}

fn drafts<'a>(compiled: &'a Compiled, rule: &str) -> &'a [Draft] {
    let rule = compiled.rules.iter().find(|r| r.name == rule);
    &rule.unwrap_or_else(|| panic!("{:?}", compiled.rules)).drafts
}

fn mapped(text: &str) -> u128 {
    match text.parse().unwrap() {
        IpAddr::V4(a) => a.to_ipv6_mapped().to_bits(),
        IpAddr::V6(a) => a.to_bits(),
    }
}

#[test]
fn an_eni_is_its_place_its_sources_and_its_addresses() {
    let compiled = compiled("");
    let entries = drafts(&compiled, "eni/a");
    let place = &entries[0];
    assert_eq!((place.table, place.scope, &place.matches[..]), (vnet::ENI, 0, &[FieldMatch::Exact(1)][..]));
    let mut params = vec![1, 0x0200_0000_010a, 100, vnet::FLAG_ANTI_SPOOF];
    params.extend([11, 12, 0, 0, 0]);
    params.extend([0; 15]);
    assert_eq!((place.action.id, &place.action.params), (vnet::SET_ENI, &params));
    let names = vnet::PROGRAM.table(vnet::ENI).unwrap().action(vnet::SET_ENI).unwrap().params;
    assert_eq!(names.len(), params.len());
    let host = |text| vec![FieldMatch::Prefix { value: mapped(text), len: 128 }];
    let found: Vec<_> =
        entries[1..].iter().map(|d| (d.table, d.scope, d.matches.clone(), d.action.params.clone())).collect();
    let to = vec![1, 0x0200_0000_010a];
    assert_eq!(
        found,
        [
            (vnet::SOURCE, 1, host("10.0.0.100"), vec![]),
            (vnet::SOURCE, 1, host("fd00::100"), vec![]),
            (vnet::MAPPING, 100, host("10.0.0.100"), to.clone()),
            (vnet::MAPPING, 100, host("fd00::100"), to),
        ]
    );
    assert_eq!(drafts(&compiled, "eni/b")[0].action.params[3], 0, "no anti-spoofing");
    let scopes = [(vnet::ENI, 0), (vnet::SOURCE, 1), (vnet::SOURCE, 2), (vnet::ACL, 11), (vnet::ACL, 12)];
    assert!(scopes.iter().all(|s| compiled.scopes.contains(s)), "empty scopes exist, too");
}

fn group(rules: &str) -> String {
    format!(
        "[[acl_group]]\nacl_group_id = \"level-1\"\nip_version = \"ipv4\"\n[[acl_group.rule]]\nid = \"r\"\npriority = 3\n{rules}\n"
    )
}

#[test]
fn lists_of_an_acl_rule_multiply() {
    let rule = "action = \"deny\"\nprotocol = [\"tcp\", \"udp\"]\nsrc_addr = [\"10.0.0.0/24\", \"10.0.1.0/24\"]\ndst_port = [80, \"1000-2000\"]";
    let compiled = compiled(&group(rule));
    let entries = drafts(&compiled, "acl/level-1/r");
    assert_eq!(entries.len(), 8);
    assert!(
        entries.iter().all(|d| (d.table, d.scope, d.priority, d.action.id) == (vnet::ACL, 11, 3, vnet::DENY))
    );
    assert_eq!(
        entries[1].matches,
        [
            FieldMatch::Exact(6),
            FieldMatch::Prefix { value: mapped("10.0.0.0"), len: 96 + 24 },
            FieldMatch::Any,
            FieldMatch::Any,
            FieldMatch::Range { low: 1000, high: 2000 },
        ]
    );
}

#[test]
fn ports_of_any_protocol_are_those_of_tcp_and_udp() {
    let rule = "action = \"allow\"\nterminating = true\nprotocol = [\"tcp\"]\ndst_port = [53]";
    let level_2 = "[[acl_group]]\nacl_group_id = \"level-2\"\nip_version = \"ipv4\"\n";
    let text = BASE.to_owned() + &group(rule) + level_2;
    let mut desired = Config::parse(&text, "test.toml").unwrap().desired;
    desired.acl_groups[0].rules[0].protocol.clear();
    let compiled = compile(&desired, &["pa".to_owned(), "pb".to_owned()], &mut Fixed).unwrap();
    let entries = drafts(&compiled, "acl/level-1/r");
    let protocols: Vec<FieldMatch> = entries.iter().map(|d| d.matches[0]).collect();
    assert_eq!(protocols, [FieldMatch::Exact(6), FieldMatch::Exact(17)]);
    assert!(entries.iter().all(|d| d.action.id == vnet::ALLOW_TERMINATING));
}

#[test]
fn a_rule_that_multiplies_beyond_the_bound_is_named() {
    let ports = |n: u32| (0..n).map(|p| (2 * p).to_string()).collect::<Vec<_>>().join(",");
    let rule =
        |n| format!("action = \"allow\"\nprotocol = [\"tcp\"]\nsrc_port = [{0}]\ndst_port = [{0}]", ports(n));
    assert_eq!(drafts(&compiled(&group(&rule(64))), "acl/level-1/r").len(), 4096);
    let error = try_compile(&group(&rule(65))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "acl/level-1/r: its lists multiply to 4225 entries; at most 4096 are accepted, split the rule"
    );
}

#[test]
fn a_port_that_the_device_does_not_have_is_named() {
    let config = Config::parse(BASE.split("[[eni.acl_out]]").next().unwrap(), "test.toml").unwrap();
    let error = compile(&config.desired, &["pb".to_owned()], &mut Fixed).unwrap_err();
    assert!(error.to_string().starts_with("eni/a: the device has no port \"pa\""), "{error}");
}

/// IPv4 addresses are looked up as ::ffff:a.b.c.d, which ::/0 covers: it must not become a route of IPv4.
#[test]
fn an_ipv6_default_route_takes_no_ipv4_packet() {
    let route = |prefix: &str, to: &str| format!("[[route]]\neni = \"a\"\nprefix = \"{prefix}\"\n{to}\n");
    let vnet_route = "action_type = \"vnet\"\nvnet = \"blue\"";
    let all = route("::/0", vnet_route);
    let compiled_alone = compiled(&all);
    let alone = drafts(&compiled_alone, "route/a/::/0");
    assert_eq!(alone.len(), 2);
    assert_eq!(alone[1].matches, [FieldMatch::Prefix { value: mapped("0.0.0.0"), len: 96 }]);
    assert_eq!(alone[1].action.id, vnet::BLACKHOLE);
    let both = compiled(&(all + &route("0.0.0.0/0", vnet_route)));
    assert_eq!(drafts(&both, "route/a/::/0").len(), 1);
    let v4 = &drafts(&both, "route/a/0.0.0.0/0")[0];
    assert_eq!((&v4.matches, v4.action.id), (&alone[1].matches, vnet::TO_VNET));
}

/// DASH's table of levels: what each packet from 10.0.0.100 must get.
#[test]
fn dash_levels_answer_as_documented() {
    let text = r#"
[[acl_group]]
acl_group_id = "level-1"
ip_version = "ipv4"
rule = [
  { id = "0", priority = 0, protocol = ["tcp"], dst_addr = ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "30.0.0.0/24"], action = "allow" },
  { id = "1", priority = 1, protocol = ["tcp"], dst_addr = ["10.0.0.200"], action = "allow" },
  { id = "2", priority = 2, protocol = ["tcp"], dst_addr = ["10.0.0.201"], action = "deny", terminating = true },
  { id = "3", priority = 3, protocol = ["tcp"], dst_addr = ["10.0.0.202"], action = "allow", terminating = true },
  { id = "4", priority = 4, protocol = ["tcp"], dst_addr = ["10.0.0.203"], action = "allow" },
  { id = "5", priority = 5, dst_addr = ["8.8.8.8"], action = "deny", terminating = true },
  { id = "6", priority = 6, dst_addr = ["8.8.8.8"], action = "allow", terminating = true },
  { id = "7", priority = 7, dst_addr = ["9.9.9.9"], action = "allow", terminating = true },
  { id = "8", priority = 8, action = "deny" },
]
[[acl_group]]
acl_group_id = "level-2"
ip_version = "ipv4"
rule = [
  { id = "0", priority = 0, protocol = ["tcp"], dst_addr = ["10.0.0.202", "10.0.0.203"], action = "deny", terminating = true },
  { id = "1", priority = 1, protocol = ["tcp"], src_addr = ["10.0.0.0/24"], action = "allow" },
  { id = "2", priority = 2, dst_addr = ["8.8.8.8"], action = "allow" },
  { id = "3", priority = 3, dst_addr = ["9.9.9.9"], action = "deny", terminating = true },
  { id = "4", priority = 4, dst_addr = ["1.1.1.2"], action = "allow" },
  { id = "5", priority = 5, action = "deny" },
]
"#;
    let compiled = compiled(text);
    let groups = &drafts(&compiled, "eni/a")[0].action.params[4..9];
    let verdict = |protocol: u128, dst: &str| {
        let key = [protocol, mapped("10.0.0.100"), mapped(dst), 1000, 80];
        let mut allowed = false;
        for group in groups.iter().filter(|g| **g != 0) {
            let rules = compiled.rules.iter().flat_map(|r| &r.drafts);
            let hit = rules
                .filter(|d| d.table == vnet::ACL && u128::from(d.scope) == *group)
                .filter(|d| d.matches.iter().zip(key).all(|(m, v)| m.matches(v)))
                .min_by_key(|d| d.priority);
            match hit.map(|d| d.action.id) {
                Some(vnet::ALLOW) => allowed = true,
                Some(vnet::DENY) => allowed = false,
                Some(vnet::ALLOW_TERMINATING) => return true,
                _ => return false,
            }
        }
        allowed
    };
    let rows = [
        (6, "10.0.0.200", true),
        (6, "10.0.0.201", false),
        (6, "10.0.0.202", true),
        (6, "10.0.0.203", false),
        (6, "8.8.8.8", false),
        (17, "8.8.8.8", false),
        (17, "9.9.9.9", true),
        (17, "1.1.1.1", false),
        (17, "1.1.1.2", true),
        (6, "1.1.1.1", true),
    ];
    for (protocol, dst, allow) in rows {
        assert_eq!(verdict(protocol, dst), allow, "protocol {protocol} to {dst}");
    }
}
