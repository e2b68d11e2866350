use super::*;
use model::{AclAction, AclGroup, AclRule, AclStage, Config, IpVersion, Offload, Port, PortKind, Protocol};

/// Two ENIs of one VNET and one of another with the first one's address.
fn plain() -> Desired {
    let text = r#"
        schema = 1
        port = [{ name = "a", kind = "memory" }, { name = "b", kind = "memory" }, { name = "c", kind = "memory" }]
        vnet = [{ name = "blue", vni = 1 }, { name = "red", vni = 2 }]
        eni = [
            { name = "ea", port = "a", vnet = "blue", mac_address = "02:00:00:00:00:0a", addresses = ["10.0.0.1", "fd00::1"] },
            { name = "eb", port = "b", vnet = "blue", mac_address = "02:00:00:00:00:0b", addresses = ["10.0.0.2", "10.1.0.0/16"] },
            { name = "ec", port = "c", vnet = "red", mac_address = "02:00:00:00:00:0c", addresses = ["10.0.0.1"] },
        ]
        route = [
            { eni = "ea", prefix = "0.0.0.0/0", action_type = "vnet", vnet = "blue" },
            { eni = "ea", prefix = "10.0.0.128/25", action_type = "drop" },
            { eni = "eb", prefix = "10.0.0.0/8", action_type = "vnet", vnet = "blue" },
        ]
        vnet_mapping = [{ vnet = "blue", ip_address = "10.1.2.3", eni = "ea" }]
    "#;
    match Config::parse(text, "plain") {
        Ok(config) => config.desired,
        Err(errors) => panic!("{errors:?}"),
    }
}

fn tuple(protocol: u8, src: &str, dst: &str, ports: (u16, u16)) -> Tuple {
    let upper = if matches!(protocol, TCP | UDP) { Upper::Ports(ports.0, ports.1) } else { Upper::None };
    Tuple { src: src.parse().unwrap(), dst: dst.parse().unwrap(), protocol, upper }
}

fn answer(policy: &Policy, port: &str, src: &str, dst: &str) -> String {
    match policy.judge(port, &tuple(UDP, src, dst, (1, 2))).answer {
        Judged::Allowed(exit) => exit.port,
        Judged::Denied(reason) => reason.code().into(),
    }
}

#[test]
fn the_way_through() {
    let policy = Policy::new(&plain());
    let rows = [
        ("a", "10.0.0.1", "10.0.0.2", "b"),
        ("b", "10.0.0.2", "10.0.0.1", "a"),
        ("b", "10.1.0.9", "10.0.0.1", "a"),
        ("a", "10.0.0.3", "10.0.0.2", "spoofed_ip"),
        ("a", "10.0.0.1", "10.0.0.200", "route_drop"),
        ("b", "10.0.0.2", "11.0.0.1", "no_route"),
        ("c", "10.0.0.1", "10.0.0.2", "no_route"),
        ("a", "fd00::1", "fd00::2", "no_route"),
        ("a", "10.0.0.1", "10.0.0.9", "no_mapping"),
        ("a", "10.0.0.1", "10.1.9.9", "b"),
        ("a", "10.0.0.1", "10.1.2.3", "same_eni"),
        ("b", "10.0.0.2", "10.1.2.3", "a"),
        ("d", "10.0.0.2", "10.0.0.1", "no_eni"),
    ];
    for (port, src, dst, expected) in rows {
        assert_eq!(answer(&policy, port, src, dst), expected, "{src} > {dst} at {port}");
    }
}

#[test]
fn neighbours() {
    let policy = Policy::new(&plain());
    let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
    let ask = |port, from: u8, claims: u8, sender: Option<&str>, target: &str| {
        let sender = sender.map(|s| s.parse().unwrap());
        policy.neighbor(port, mac(from), (mac(claims), sender), target.parse().unwrap())
    };
    assert_eq!(ask("a", 10, 10, Some("10.0.0.1"), "10.0.0.2"), Neighbor::Answer(mac(11)));
    assert_eq!(ask("a", 10, 10, Some("10.0.0.1"), "10.0.0.1"), Neighbor::Ignored);
    assert_eq!(ask("a", 10, 10, None, "10.0.0.2"), Neighbor::Ignored);
    let denied = Neighbor::Denied;
    assert_eq!(ask("a", 10, 10, Some("10.0.0.1"), "10.0.0.9"), denied(DropReason::ArpUnknownAddress));
    assert_eq!(ask("a", 10, 10, Some("fd00::1"), "fd00::9"), denied(DropReason::NdUnknownAddress));
    assert_eq!(ask("a", 11, 10, Some("10.0.0.1"), "10.0.0.2"), denied(DropReason::SpoofedMac));
    assert_eq!(ask("a", 10, 11, Some("10.0.0.1"), "10.0.0.2"), denied(DropReason::SpoofedArp));
    assert_eq!(ask("a", 10, 10, Some("10.0.0.2"), "10.0.0.2"), denied(DropReason::SpoofedArp));
    assert_eq!(ask("d", 10, 10, None, "10.0.0.2"), denied(DropReason::NoEni));
}

fn rule(priority: u32, protocol: &[u8], dst: &[&str], action: AclAction, terminating: bool) -> AclRule {
    AclRule {
        id: format!("r{priority}"),
        priority,
        action,
        terminating,
        protocol: protocol.iter().map(|&p| Protocol(p)).collect(),
        src_addr: vec![],
        dst_addr: dst.iter().map(|d| d.parse().unwrap()).collect(),
        src_port: vec![],
        dst_port: vec![],
        offload: Offload::Any,
        span: Default::default(),
    }
}

/// The table of DASH's documentation, with all its answers.
#[test]
fn dash_truth_table() {
    use AclAction::{Allow, Deny};
    let t = [TCP];
    let level_1 = vec![
        rule(
            0,
            &t,
            &["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "30.0.0.0/24"],
            Allow,
            false,
        ),
        rule(1, &t, &["10.0.0.200"], Allow, false),
        rule(2, &t, &["10.0.0.201"], Deny, true),
        rule(3, &t, &["10.0.0.202"], Allow, true),
        rule(4, &t, &["10.0.0.203"], Allow, false),
        rule(5, &[], &["8.8.8.8"], Deny, true),
        rule(6, &[], &["8.8.8.8"], Allow, true),
        rule(7, &[], &["9.9.9.9"], Allow, true),
        rule(8, &[], &[], Deny, false),
    ];
    let from = AclRule { src_addr: vec!["10.0.0.0/24".parse().unwrap()], ..rule(10, &t, &[], Allow, false) };
    let level_2 = vec![
        rule(0, &t, &["10.0.0.202"], Deny, true),
        rule(1, &t, &["10.0.0.203"], Deny, true),
        from,
        rule(20, &[], &["8.8.8.8"], Allow, false),
        rule(21, &[], &["9.9.9.9"], Deny, true),
        rule(22, &[], &["1.1.1.2"], Allow, false),
        rule(30, &[], &[], Deny, false),
    ];
    let group = |id: &str, rules| AclGroup {
        acl_group_id: id.into(),
        ip_version: IpVersion::Ipv4,
        rules,
        span: Default::default(),
    };
    let mut desired = plain();
    desired.acl_groups = vec![group("1", level_1), group("2", level_2)];
    let stage = |stage, id: &str| AclStage {
        stage,
        v4_acl_group_id: Some(id.into()),
        v6_acl_group_id: None,
        span: Default::default(),
    };
    // In the file in the other order: what counts is the number.
    let stages = [stage(3, "2"), stage(1, "1")];
    let policy = Policy::new(&desired);
    let rows = [
        (TCP, "10.0.0.200", true),
        (TCP, "10.0.0.201", false),
        (TCP, "10.0.0.202", true),
        (TCP, "10.0.0.203", false),
        (TCP, "8.8.8.8", false),
        (TCP, "9.9.9.9", true),
        (UDP, "1.1.1.1", false),
        (UDP, "1.1.1.2", true),
        (TCP, "1.1.1.1", true),
    ];
    for (protocol, dst, allowed) in rows {
        let tuple = tuple(protocol, "10.0.0.100", dst, (1000, 80));
        assert_eq!(policy.acl_allows(&stages, &tuple, &mut vec![]), allowed, "{tuple}");
    }
}

#[test]
fn ports_are_matched_where_there_are_some() {
    let mut with_port = rule(1, &[], &[], AclAction::Allow, false);
    with_port.dst_port = vec!["0-65535".parse().unwrap()];
    assert!(acl::matches(&with_port, &tuple(UDP, "10.0.0.1", "10.0.0.2", (1, 2))));
    assert!(!acl::matches(&with_port, &tuple(47, "10.0.0.1", "10.0.0.2", (0, 0))));
    let echo = Tuple { upper: Upper::EchoRequest(2), ..tuple(1, "10.0.0.1", "10.0.0.2", (0, 0)) };
    assert!(!acl::matches(&with_port, &echo));
}

fn packet(port: &str, mac: u8, tuple: Tuple, what: What) -> Packet {
    Packet { port: port.into(), mac: MacAddr([2, 0, 0, 0, 0, mac]), tuple, what }
}

fn only(reference: &Reference, packet: &Packet) -> String {
    let expected = reference.expect(packet, 0);
    assert_eq!(expected.len(), 1, "{expected:?}");
    match &expected[0].outcome {
        Outcome::Delivered(exit) => exit.port.clone(),
        Outcome::Dropped(reason) => reason.code().into(),
    }
}

/// `ea` may send to `eb`, which may send nothing.
fn one_way() -> Desired {
    let mut desired = plain();
    desired.acl_groups = vec![AclGroup {
        acl_group_id: "none".into(),
        ip_version: IpVersion::Ipv4,
        rules: vec![],
        span: Default::default(),
    }];
    desired.enis[1].acl_out = vec![AclStage {
        stage: 1,
        v4_acl_group_id: Some("none".into()),
        v6_acl_group_id: None,
        span: Default::default(),
    }];
    desired
}

#[test]
fn answers_share_the_verdict_of_the_opener() {
    let mut reference = Reference::new(Policy::new(&one_way()));
    let t = tuple(TCP, "10.0.0.1", "10.0.0.2", (1000, 80));
    let syn = packet("a", 10, t, What::Opener);
    let reply = packet("b", 11, t.reversed(), What::Follower);
    assert_eq!(only(&reference, &reply), "acl_out_denied", "no connection yet");
    let early = packet("a", 10, t, What::Follower);
    assert_eq!(only(&reference, &early), "tcp_no_connection");
    let there = Outcome::Delivered(Exit { port: "b".into(), mac: MacAddr([2, 0, 0, 0, 0, 11]) });
    reference.observe(&syn, &there, 0).unwrap();
    assert_eq!(only(&reference, &reply), "a");
    let error = packet("b", 11, t, What::Error("10.0.0.2".parse().unwrap()));
    assert_eq!(only(&reference, &error), "a");
    let forged = packet("b", 11, t, What::Error("10.0.0.9".parse().unwrap()));
    assert_eq!(only(&reference, &forged), "spoofed_ip");
    let elsewhere = packet("c", 12, t.reversed(), What::Follower);
    assert_eq!(only(&reference, &elsewhere), "spoofed_ip", "another port has no part in it");
    assert!(reference.observe(&reply, &there, 0).is_err());
    assert_eq!(reference.hits["route/ea/0.0.0.0/0"], 1);
}

#[test]
fn a_change_is_old_or_new_and_ends_what_it_denies() {
    let mut reference = Reference::new(Policy::new(&plain()));
    let t = tuple(UDP, "10.0.0.1", "10.0.0.2", (1000, 53));
    let there = Outcome::Delivered(Exit { port: "b".into(), mac: MacAddr([2, 0, 0, 0, 0, 11]) });
    let query = packet("a", 10, t, What::Opener);
    reference.observe(&query, &there, 0).unwrap();
    let mut denied = plain();
    denied.routes.retain(|r| r.eni != "ea");
    reference.change(Policy::new(&denied));
    assert_eq!(reference.expect(&query, 0).len(), 3, "as known, as new, and as denied");
    reference.in_force(1);
    assert_eq!(only(&reference, &query), "no_route");
    reference.observe(&query, &Outcome::Dropped(DropReason::NoRoute), 0).unwrap();
    assert!(reference.connections().is_empty());
    reference.change(Policy::new(&plain()));
    reference.withdrawn(1);
    assert_eq!(only(&reference, &query), "no_route", "refused: the old one stays");
}

#[test]
fn ports_of_a_device_are_its_own() {
    let port = Port {
        name: "d".into(),
        kind: PortKind::Memory,
        interface: "d".into(),
        mtu: 1500,
        span: Default::default(),
    };
    let mut desired = plain();
    desired.ports.push(port);
    assert_eq!(answer(&Policy::new(&desired), "d", "10.0.0.1", "10.0.0.2"), "no_eni");
}
