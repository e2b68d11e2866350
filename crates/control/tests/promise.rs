//! The promise under any rules, capacities, orders of completions and faults: at every commit the device answers as the full tables
//! do, or punts; host path tables are always one accepted revision, whole; and once faults stop, the controller arrives.

mod support;

use contract::schema::vnet;
use contract::{Action, FieldMatch, ResetScope, TableId};
use control::{CompileError, Controller, Numbering, Options, Submission, Verdict, compile};
use model::{
    AclAction, AclGroup, AclRule, AclStage, Desired, Eni, IpPrefix, IpVersion, MacAddr, Offload, Port,
    PortKind, PortRange, Protocol, Route, RouteAction, Span, Vnet, VnetMapping,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use store::Memory;
use support::{FakeDevice, Faults, Rng, Tables};

const PORTS: [&str; 2] = ["p1", "p2"];

fn prefix(text: &str) -> IpPrefix {
    text.parse().unwrap()
}

/// Nested and disjoint prefixes, so that many rules override each other.
const PREFIXES: [&str; 9] = [
    "0.0.0.0/0",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.1.1.0/24",
    "10.1.1.128/25",
    "10.1.1.1",
    "10.2.0.0/16",
    "10.2.2.2",
    "192.168.0.0/16",
];

fn some_prefixes(rng: &mut Rng) -> Vec<IpPrefix> {
    (0..rng.below(3)).map(|_| prefix(rng.pick(&PREFIXES))).collect()
}

fn some_ports(rng: &mut Rng) -> Vec<PortRange> {
    let ranges = [(80, 80), (1, 1023), (1000, 2000), (0, 65535)];
    (0..rng.below(2)).map(|_| rng.pick(&ranges)).map(|(a, b)| PortRange::new(a, b).unwrap()).collect()
}

fn desired(rng: &mut Rng) -> Desired {
    let span = Span::default();
    let mut desired = Desired::default();
    desired.vnets.push(Vnet { name: "blue".into(), vni: 100, span });
    for (n, port) in PORTS.iter().enumerate() {
        desired.ports.push(Port {
            name: (*port).into(),
            kind: PortKind::Memory,
            interface: (*port).into(),
            mtu: 1500,
            span,
        });
        let stage = AclStage { stage: 1, v4_acl_group_id: Some("g".into()), v6_acl_group_id: None, span };
        desired.enis.push(Eni {
            name: format!("e{n}"),
            port: (*port).into(),
            vnet: "blue".into(),
            mac_address: MacAddr([2, 0, 0, 0, 0, n as u8 + 1]),
            addresses: vec![prefix(&format!("10.1.1.{}", n + 1))],
            anti_spoof: true,
            acl_out: vec![stage],
            acl_in: vec![],
            span,
        });
        let mut seen = BTreeSet::new();
        for _ in 0..rng.below(5) {
            let prefix = prefix(rng.pick(&PREFIXES));
            let drop = rng.percent(30);
            if seen.insert(prefix) {
                desired.routes.push(Route {
                    eni: format!("e{n}"),
                    prefix,
                    action_type: if drop { RouteAction::Drop } else { RouteAction::Vnet },
                    vnet: (!drop).then(|| "blue".into()),
                    span,
                });
            }
        }
    }
    let rules = (0..rng.below(10)).map(|n| {
        let src_port = some_ports(rng);
        let dst_port = some_ports(rng);
        let protocols = [vec![], vec![Protocol::TCP], vec![Protocol::TCP, Protocol::UDP]];
        AclRule {
            id: format!("r{n}"),
            priority: (n * 7 + rng.below(7)) as u32,
            action: rng.pick(&[AclAction::Allow, AclAction::Deny]),
            terminating: rng.percent(50),
            protocol: rng.pick(&protocols),
            src_addr: some_prefixes(rng),
            dst_addr: some_prefixes(rng),
            src_port,
            dst_port,
            offload: if rng.percent(4) { Offload::HardwareOnly } else { Offload::Any },
            span,
        }
    });
    let rules = rules.collect();
    desired.acl_groups.push(AclGroup { acl_group_id: "g".into(), ip_version: IpVersion::Ipv4, rules, span });
    for text in &PREFIXES[2..] {
        if rng.percent(25) && !desired.enis.iter().any(|e| e.addresses.contains(&prefix(text))) {
            let eni = format!("e{}", rng.below(2));
            desired.vnet_mappings.push(VnetMapping {
                vnet: "blue".into(),
                ip_address: prefix(text),
                eni,
                span,
            });
        }
    }
    desired
}

/// ENIs and the group are the same in all revisions, so their numbers are those of their order.
struct InOrder;

impl Numbering for InOrder {
    fn eni(&mut self, name: &str) -> Result<u16, CompileError> {
        Ok(name[1..].parse::<u16>().unwrap() + 1)
    }

    fn group(&mut self, _: &str) -> Result<u32, CompileError> {
        Ok(1)
    }
}

type Content = BTreeSet<(TableId, u32, u32, Vec<FieldMatch>, Action)>;

fn content_of(desired: &Desired) -> Content {
    let ports = PORTS.map(str::to_owned);
    let compiled = compile(desired, &ports, &mut InOrder).unwrap();
    let drafts = compiled.rules.into_iter().flat_map(|r| r.drafts);
    drafts.map(|d| (d.table, d.scope, d.priority, d.matches, d.action)).collect()
}

fn content(tables: &Tables) -> Content {
    let entries = tables.entries.values();
    entries.map(|e| (e.table, e.scope, e.priority, e.matches.clone(), e.action.clone())).collect()
}

fn options() -> Options {
    Options {
        timeout: 50_000_000,
        watch: 20_000_000,
        audit: 200_000_000,
        backoff: 1_000_000,
        backoff_max: 20_000_000,
        attempts: 1000,
        ..Options::default()
    }
}

fn run(seed: u64, faults: Faults) -> Result<(), TestCaseError> {
    let mut rng = Rng::new(seed);
    let limit = |rng: &mut Rng, least: usize, n: usize| (least + rng.below(n)) as u64;
    let limits = [
        ("acl", limit(&mut rng, 0, 14)),
        ("route", limit(&mut rng, 0, 8)),
        ("mapping", limit(&mut rng, 0, 6)),
        ("source", limit(&mut rng, 0, 3)),
        ("eni", limit(&mut rng, 1, 2)),
    ];
    let limits = if rng.percent(15) { &[][..] } else { &limits };
    let mut device = FakeDevice::new(seed ^ 0x55, limits, &PORTS);
    device.capabilities.queue = 1 + rng.below(20) as u32;
    device.faults = faults;
    let store = Memory::default();
    let mut now = 0;
    let mut controller = Controller::open(store.clone(), options(), now, 0).unwrap();
    let mut accepted: Vec<(u64, Content)> = vec![(0, Content::new())];
    for step in 0..4000 {
        now += 1 + rng.below(2_000_000) as u64;
        if rng.percent(1) && accepted.len() < 8 || step == 0 {
            let desired = desired(&mut rng);
            let revision = Submission { desired: desired.clone(), text: String::new(), author: "any".into() };
            let revision = controller.apply(revision, now).unwrap();
            accepted.push((revision, content_of(&desired)));
        }
        if rng.below(1000) == 0 {
            controller = Controller::open(store.clone(), options(), now, 0).unwrap();
        }
        if rng.below(1000) == 0 {
            controller.reset(ResetScope::Warm);
        }
        let _ = controller.poll(&mut device, now);
        prop_assert_eq!(&device.violations, &Vec::<String>::new(), "seed {}", seed);
        prop_assert_eq!(better_than_true(&controller, &device), None, "seed {} step {}", seed, step);
    }
    device.faults = Faults::default();
    let mut calm = 0;
    for _ in 0..20_000 {
        now += 1_000_000;
        let _ = controller.poll(&mut device, now);
        calm = if controller.is_settled() { calm + 1 } else { 0 };
        if calm > 300 {
            break;
        }
    }
    prop_assert!(calm > 300, "seed {}: did not arrive: {:?}", seed, controller.status());
    prop_assert_eq!(&device.violations, &Vec::<String>::new(), "seed {}", seed);
    device.check();
    prop_assert_eq!(&device.violations, &Vec::<String>::new(), "seed {} at the end", seed);
    for (n, (host, _)) in device.commits.iter().enumerate() {
        let host = content(host);
        prop_assert!(accepted.iter().any(|(_, c)| *c == host), "seed {}: commit {} is no revision", seed, n);
    }
    let Some(current) = controller.current() else {
        prop_assert!(accepted[1..].iter().all(|(r, _)| refused(&controller, *r)), "seed {}", seed);
        return Ok(());
    };
    let wanted = &accepted.iter().find(|(r, _)| *r == current.revision).unwrap().1;
    prop_assert_eq!(
        &content(&device.host),
        wanted,
        "seed {}: the host path holds the revision in force",
        seed
    );
    prop_assert!(
        accepted.iter().filter(|(r, _)| *r > current.revision).all(|(r, _)| refused(&controller, *r))
    );
    prop_assert!(controller.diff().known);
    prop_assert_eq!(controller.diff().lines, vec![], "seed {}", seed);
    prop_assert_eq!(device.armed.len(), 2, "seed {}", seed);
    check_reports(&controller, &device, seed)?;

    // A restart finds all as it should be, and changes nothing.
    let commits = device.commits.len();
    let before = places(&controller);
    let mut controller = Controller::open(store, options(), now, 0).unwrap();
    for _ in 0..200 {
        now += 1_000_000;
        let _ = controller.poll(&mut device, now);
    }
    prop_assert!(controller.is_settled(), "seed {}", seed);
    if faults.refuse == 0 {
        prop_assert_eq!(device.commits.len(), commits, "seed {}: a restart touched the tables", seed);
        let after = places(&controller);
        prop_assert_eq!(before, after, "seed {}", seed);
    }
    prop_assert_eq!(&device.violations, &Vec::<String>::new(), "seed {} after a restart", seed);
    check_reports(&controller, &device, seed)
}

/// How much of each rule in force is in the device.
fn places(controller: &Controller<Memory>) -> BTreeMap<String, String> {
    let in_force = controller.rules().into_iter().filter(|r| r.entries != "0/0");
    in_force.map(|r| (r.id, r.entries)).collect()
}

fn refused(controller: &Controller<Memory>, revision: u64) -> bool {
    // A controller that was started again remembers only what is in force and what is under way.
    !matches!(controller.verdict(revision), Some(Verdict::Pending | Verdict::Confirmed))
}

/// A rule that is said to be in the device and is not, in part or in whole.
fn better_than_true(controller: &Controller<Memory>, device: &FakeDevice) -> Option<control::RuleReport> {
    let sure = [control::RuleState::Confirmed, control::RuleState::Proven];
    let inside = |number: u32| device.device.entries.values().filter(move |e| e.rule.rule == number).count();
    let all = |number: u32| device.host.entries.values().filter(move |e| e.rule.rule == number).count();
    let mut rules = controller.rules().into_iter().filter(|r| sure.contains(&r.state));
    rules.find(|r| all(r.number) == 0 || inside(r.number) != all(r.number))
}

/// At rest, every report says what is.
fn check_reports(
    controller: &Controller<Memory>,
    device: &FakeDevice,
    seed: u64,
) -> Result<(), TestCaseError> {
    use control::RuleState::{Confirmed, Proven, Refused, Software};
    for rule in controller.rules() {
        let of_rule =
            |e: &&contract::Entry| e.rule.rule == rule.number && e.action.id != contract::schema::PUNT;
        let inside = device.device.entries.values().filter(of_rule).count();
        let all = device.host.entries.values().filter(of_rule).count();
        if rule.state == Refused && all == 0 {
            continue;
        }
        prop_assert_eq!(&rule.entries, &format!("{}/{}", inside, all), "seed {}: {:?}", seed, rule);
        let state = match rule.state {
            Confirmed | Proven => inside == all,
            Software | Refused => inside < all && rule.reason.is_some(),
            _ => false,
        };
        prop_assert!(state, "seed {}: {:?} with {}/{}", seed, rule, inside, all);
    }
    Ok(())
}

/// 24 cases, or as many as PROPTEST_CASES says.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn without_faults(seed in any::<u64>()) {
        run(seed, Faults::default())?;
    }

    #[test]
    fn with_lost_doubled_and_reset(seed in any::<u64>()) {
        run(seed, Faults { lose: 1, double: 10, refuse: 0, reset: 2, not_effective: 0 })?;
    }

    /// What was refused for no lasting reason is asked for again by a restart: then it may touch the tables.
    #[test]
    fn with_lost_doubled_refused_and_reset(seed in any::<u64>()) {
        run(seed, Faults { lose: 1, double: 10, refuse: 5, reset: 2, not_effective: 0 })?;
    }
}

/// While entries do not hold what the device promised, nobody can promise either; what is promised is to notice and arrive.
#[test]
fn entries_that_do_not_take_effect_are_noticed_and_given_up() {
    let mut rng = Rng::new(5);
    let mut device = FakeDevice::new(5, &[], &PORTS);
    device.faults.not_effective = 100;
    let mut now = 0;
    let mut controller = Controller::open(Memory::default(), options(), now, 0).unwrap();
    let desired = desired(&mut rng);
    let submission = Submission { desired, text: String::new(), author: "any".into() };
    controller.apply(submission, now).unwrap();
    for _ in 0..3000 {
        now += 1_000_000;
        controller.poll(&mut device, now).unwrap();
        assert_eq!(better_than_true(&controller, &device), None);
    }
    assert!(controller.is_settled(), "{:?}", controller.status());
    assert!(device.used(vnet::ENI) == 0);
    for rule in controller.rules() {
        assert_eq!(
            (rule.state, rule.reason.as_deref()),
            (control::RuleState::Software, Some("firmware_rejected")),
            "{rule:?}"
        );
    }
    device.check();
    assert_eq!(device.violations, Vec::<String>::new());
}
