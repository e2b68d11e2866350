//! The controller against a device with limits and faults.

mod support;

use contract::report::{Executor, TraceOutcome, TraceReport, TraceStep};
use contract::schema::{PUNT, vnet};
use contract::{EntryHits, EntryId, Probed, ResetScope, Version};
use control::api::{ApiAnswer, ApiRequest};
use control::{Controller, Options, RuleState, Submission, Verdict};
use model::Config;
use store::Memory;
use support::{FakeDevice, Found};

const PORTS: [&str; 2] = ["blue-1", "blue-2"];

/// Two ENIs of one VNET; blue-1 sends through group `out`, with these rules: (priority, `allow` or `deny`, dst, offload).
fn text(rules: &[(u32, &str, &str, &str)]) -> String {
    let mut text = String::from("schema = 1\n");
    for (n, port) in PORTS.iter().enumerate() {
        text += &format!("[[port]]\nname = \"{port}\"\nkind = \"memory\"\n");
        text += &format!(
            "[[eni]]\nname = \"{port}\"\nport = \"{port}\"\nvnet = \"blue\"\nmac_address = \"02:00:00:00:01:0{0}\"\naddresses = [\"10.0.0.{0}\"]\n",
            n + 1
        );
        if n == 0 {
            text += "[[eni.acl_out]]\nstage = 1\nv4_acl_group_id = \"out\"\n";
        }
        text += &format!(
            "[[route]]\neni = \"{port}\"\nprefix = \"10.0.0.0/8\"\naction_type = \"vnet\"\nvnet = \"blue\"\n"
        );
    }
    text += "[[vnet]]\nname = \"blue\"\nvni = 100\n[[acl_group]]\nacl_group_id = \"out\"\nip_version = \"ipv4\"\n";
    for (priority, action, dst, offload) in rules {
        text += &format!(
            "[[acl_group.rule]]\nid = \"r{priority}\"\npriority = {priority}\naction = \"{action}\"\ndst_addr = [\"{dst}\"]\noffload = \"{offload}\"\n"
        );
    }
    text
}

fn submission(text: &str) -> Submission {
    let config = Config::parse(text, "test.toml").unwrap_or_else(|e| panic!("{e:?}"));
    Submission { desired: config.desired, text: text.to_owned(), author: "test".to_owned() }
}

fn controller(store: &Memory, now: u64) -> Controller<Memory> {
    Controller::open(store.clone(), Options::default(), now, 1_000).unwrap()
}

/// Polls until all is settled.
fn settle(controller: &mut Controller<Memory>, device: &mut FakeDevice, now: &mut u64) {
    for _ in 0..10_000 {
        *now += 1_000_000;
        let _ = controller.poll(device, *now);
        if controller.is_settled() {
            assert_eq!(device.violations, Vec::<String>::new());
            return;
        }
    }
    panic!("not settled: {:?}", controller.status());
}

fn states(controller: &Controller<Memory>) -> Vec<(String, RuleState, String, Option<String>)> {
    let acl = controller.rules().into_iter().filter(|r| r.table == "acl");
    acl.map(|r| (r.id.replace("acl/out/", ""), r.state, r.entries, r.reason)).collect()
}

const ALLOWS: [(u32, &str, &str, &str); 3] = [
    (10, "allow", "10.0.0.0/24", "any"),
    (11, "allow", "10.0.1.0/24", "any"),
    (12, "allow", "10.0.2.0/24", "any"),
];

#[test]
fn what_fits_is_confirmed_and_armed_and_a_restart_changes_nothing() {
    let store = Memory::default();
    let mut device = FakeDevice::new(1, &[], &PORTS);
    let mut now = 0;
    let mut first = controller(&store, now);
    let revision = first.apply(submission(&text(&ALLOWS)), now).unwrap();
    assert_eq!(first.verdict(revision), Some(&Verdict::Pending));
    settle(&mut first, &mut device, &mut now);
    assert_eq!(first.verdict(revision), Some(&Verdict::Confirmed));
    assert!(first.rules().iter().all(|r| r.state == RuleState::Confirmed), "{:?}", first.rules());
    assert_eq!(device.armed, [1, 2].into());
    assert_eq!(device.commits.len(), 1);
    assert!(first.diff().known && first.diff().lines.is_empty());

    let (before, commits) = (device.device.clone(), device.commits.len());
    device.log.clear();
    let mut second = controller(&store, now);
    settle(&mut second, &mut device, &mut now);
    assert_eq!(device.count("Stage"), 0, "{:?}", device.log);
    assert_eq!((device.device, device.commits.len()), (before, commits));
    assert!(second.diff().known && second.diff().lines.is_empty());
    assert!(second.rules().iter().all(|r| r.state == RuleState::Confirmed));
}

#[test]
fn a_senior_rule_stays_and_a_punt_entry_covers_the_deny_that_did_not_fit() {
    let store = Memory::default();
    let mut device = FakeDevice::new(2, &[("acl", 3)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&store, now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let deny = (1, "deny", "10.0.0.0/23", "any");
    controller.apply(submission(&text(&[&[deny], &ALLOWS[..]].concat())), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let states = states(&controller);
    assert_eq!(states[0].1, RuleState::Software);
    assert!(states[0].3.as_ref().unwrap().starts_with("table_full{table=acl,"), "{states:?}");
    assert_eq!(states[1].1, RuleState::Confirmed, "{states:?}");
    assert_eq!(
        states[2].1,
        RuleState::Software,
        "the lowest of the two that it overrides gave way: {states:?}"
    );
    assert_eq!(states[3].1, RuleState::Confirmed, "not overridden: {states:?}");
    let punts = device.device.entries.values().filter(|e| e.action.id == PUNT).count();
    assert_eq!((punts, device.used(vnet::ACL)), (1, 3));
    assert!(controller.diff().lines.is_empty(), "{:?}", controller.diff());
}

#[test]
fn a_rule_that_did_not_fit_and_blocks_one_takes_its_place() {
    let mut device = FakeDevice::new(3, &[("acl", 3)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let deny = (1, "deny", "10.0.1.7", "any");
    controller.apply(submission(&text(&[&[deny], &ALLOWS[..]].concat())), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let states: Vec<(String, RuleState)> = states(&controller).into_iter().map(|(n, s, ..)| (n, s)).collect();
    let expected = [("r1", true), ("r10", true), ("r11", false), ("r12", true)];
    let expected = expected
        .map(|(n, inside)| (n.to_owned(), if inside { RuleState::Confirmed } else { RuleState::Software }));
    assert_eq!(states, expected);
}

#[test]
fn hardware_only_that_does_not_fit_refuses_the_whole_change() {
    let mut device = FakeDevice::new(4, &[("acl", 3)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let (host, tables, commits) = (device.host.clone(), device.device.clone(), device.commits.len());

    let more = [(1, "deny", "10.9.0.0/16", "any"), (2, "deny", "10.8.0.0/16", "hardware-only")];
    let revision = controller.apply(submission(&text(&[&more[..], &ALLOWS[..]].concat())), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let reason = "table_full{table=acl,used=3,limit=3}".to_owned();
    let rule = "acl/out/r2".to_owned();
    assert_eq!(controller.verdict(revision), Some(&Verdict::Refused { rule, reason: reason.clone() }));
    assert_eq!((&device.host, &device.device, device.commits.len()), (&host, &tables, commits));
    let states = states(&controller);
    let shown = states.iter().find(|(n, ..)| n == "r2").unwrap();
    assert_eq!((shown.1, shown.3.clone()), (RuleState::Refused, Some(reason)));
    assert!(states.iter().all(|(n, ..)| n != "r1"), "the rest of the change is not in force: {states:?}");
    assert!(states[1..].iter().all(|(_, s, ..)| *s == RuleState::Confirmed), "{states:?}");
    assert!(controller.diff().lines.is_empty());
}

#[test]
fn hardware_only_that_replaces_another_rule_of_a_full_table_shrinks_switches_and_grows() {
    let mut device = FakeDevice::new(5, &[("acl", 3)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    let rules = |dst| [(1, "deny", dst, "hardware-only"), ALLOWS[0], ALLOWS[1]];
    controller.apply(submission(&text(&rules("10.0.0.128/25"))), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let revision = controller.apply(submission(&text(&rules("10.0.0.64/26"))), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    assert_eq!(controller.verdict(revision), Some(&Verdict::Confirmed));
    let states = states(&controller);
    assert!(states.iter().all(|(_, s, ..)| *s == RuleState::Confirmed), "{states:?}");
    assert_eq!(device.used(vnet::ACL), 3);
    let old = &device.commits[device.commits.len() - 3].0;
    assert_eq!(old.entries, device.commits[0].0.entries, "the first step shrank under the old policy");
}

#[test]
fn the_latest_of_the_changes_that_have_not_begun_wins() {
    let mut device = FakeDevice::new(6, &[], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    let first = controller.apply(submission(&text(&ALLOWS[..1])), now).unwrap();
    let second = controller.apply(submission(&text(&ALLOWS[..2])), now).unwrap();
    assert_eq!(controller.verdict(first), Some(&Verdict::Superseded));
    settle(&mut controller, &mut device, &mut now);
    assert_eq!(controller.verdict(second), Some(&Verdict::Confirmed));
    assert_eq!(device.commits.len(), 1);
}

#[test]
fn after_a_reset_nothing_is_confirmed_until_it_was_read_back_again() {
    let mut device = FakeDevice::new(7, &[("acl", 2)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let before = states(&controller);
    assert_eq!(before[2].1, RuleState::Software);

    device.warm_reset();
    device.paused = true;
    controller.poll(&mut device, now).unwrap();
    let between = controller.rules();
    let sure = [RuleState::Installed, RuleState::Confirmed, RuleState::Proven];
    assert!(between.iter().all(|r| !sure.contains(&r.state)), "{between:?}");
    assert!(!controller.diff().known && !controller.is_settled());
    device.paused = false;
    settle(&mut controller, &mut device, &mut now);
    assert_eq!(states(&controller), before);
    assert_eq!(device.armed, [1, 2].into());
    assert_eq!(device.generation, 2);

    controller.reset(ResetScope::Warm);
    let asked = now;
    settle(&mut controller, &mut device, &mut now);
    let reset = controller.last_reset().unwrap();
    assert_eq!((device.generation, reset.scope), (3, Some(ResetScope::Warm)));
    assert!(reset.impact_start.uptime_ns >= asked && reset.device_back.unwrap() >= reset.impact_start);
    let history = controller.detail("acl/out/r10").unwrap().history;
    let words: Vec<&str> = history.iter().rev().take(3).map(|c| c.state.word()).collect();
    assert_eq!(words, ["confirmed", "installed", "requested"]);
    assert_eq!(history[history.len() - 3].reason.as_deref(), Some("reset"));
}

#[test]
fn a_longer_route_that_did_not_fit_is_never_answered_by_a_shorter_one() {
    let mut device = FakeDevice::new(8, &[("route", 3)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let more: String = ["10.0.0.2", "10.7.0.0/16"]
        .map(|p| format!("[[route]]\neni = \"blue-1\"\nprefix = \"{p}\"\naction_type = \"drop\"\n"))
        .concat();
    controller.apply(submission(&(text(&ALLOWS) + &more)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let key = [0xffff_0a00_0002u128];
    let punted = device.device.lookup(vnet::ROUTE, 1, &key) == Found::Punt;
    assert!(punted || device.device.lookup(vnet::ROUTE, 1, &key) == device.host.lookup(vnet::ROUTE, 1, &key));
    assert_eq!(
        device.device.lookup(vnet::ROUTE, 1, &[1]),
        Found::Punt,
        "an incomplete scope decides no miss"
    );
    assert_eq!(device.device.lookup(vnet::ROUTE, 2, &[1]), Found::Miss, "a complete one does");
}

#[test]
fn a_newer_session_fences_the_older_controller() {
    let mut device = FakeDevice::new(9, &[], &PORTS);
    let mut now = 0;
    let mut first = controller(&Memory::default(), now);
    first.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut first, &mut device, &mut now);
    let mut second = controller(&Memory::default(), now);
    second.apply(submission(&text(&ALLOWS[..1])), now).unwrap();
    settle(&mut second, &mut device, &mut now);
    let (session, commits) = (device.session, device.commits.len());
    for _ in 0..3000 {
        now += 1_000_000;
        first.poll(&mut device, now).unwrap();
    }
    assert!(first.is_fenced());
    assert_eq!((device.session, device.commits.len()), (session, commits));
    assert!(first.rules().iter().all(|r| r.state == RuleState::Requested), "what it knew is no longer sure");
    settle(&mut second, &mut device, &mut now);
}

#[test]
fn a_lost_store_means_other_numbers_and_the_old_entries_go() {
    let mut device = FakeDevice::new(10, &[], &PORTS);
    let mut now = 0;
    let mut first = controller(&Memory::default(), now);
    first.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut first, &mut device, &mut now);
    let old: Vec<EntryId> = device.device.entries.keys().copied().collect();
    let mut second = controller(&Memory::default(), now);
    second.apply(submission(&text(&[(5, "deny", "10.0.0.0/9", "any")])), now).unwrap();
    settle(&mut second, &mut device, &mut now);
    assert!(
        old.iter().all(|id| !device.device.entries.contains_key(id) && !device.host.entries.contains_key(id))
    );
    assert!(second.rules().iter().all(|r| r.state == RuleState::Confirmed));
}

#[test]
fn an_entry_that_vanishes_is_noticed_and_put_back() {
    let mut device = FakeDevice::new(11, &[], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let whole = device.device.clone();
    let victim = device.device.entries.values().find(|e| e.table == vnet::ACL).unwrap().id;
    device.device.entries.remove(&victim);
    now += 31_000_000_000;
    settle(&mut controller, &mut device, &mut now);
    assert_eq!(device.device, whole);
    let history = controller.detail("acl/out/r10").unwrap().history;
    assert!(history.iter().any(|c| c.reason.as_deref() == Some("differs_from_read_back")), "{history:?}");
}

#[test]
fn hits_in_the_device_prove_and_never_go_down() {
    let mut device = FakeDevice::new(12, &[], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    controller.apply(submission(&text(&ALLOWS)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let entry = device.device.entries.values().find(|e| e.table == vnet::ACL && e.priority == 10).unwrap().id;
    let hit = |device: u64, host: u64| EntryHits { entry, device, host };
    let state = |c: &Controller<Memory>| {
        let rule = c.rules().into_iter().find(|r| r.id == "acl/out/r10").unwrap();
        (rule.state, rule.hits_device, rule.hits_host)
    };
    let wait = |c: &mut Controller<Memory>, d: &mut FakeDevice, now: &mut u64| {
        *now += 1_100_000_000;
        c.poll(d, *now).unwrap();
    };
    wait(&mut controller, &mut device, &mut now);
    device.hits.insert(entry, hit(0, 5));
    wait(&mut controller, &mut device, &mut now);
    assert_eq!(state(&controller), (RuleState::Confirmed, 0, 5), "host hits prove nothing of the device");
    device.hits.insert(entry, hit(3, 5));
    wait(&mut controller, &mut device, &mut now);
    assert_eq!(state(&controller), (RuleState::Proven, 3, 5));
    device.hits.insert(entry, hit(1, 0));
    wait(&mut controller, &mut device, &mut now);
    assert_eq!(state(&controller), (RuleState::Proven, 4, 5), "counters that start anew add up");
    let changed = [(10, "deny", "10.0.0.0/24", "any"), ALLOWS[1], ALLOWS[2]];
    controller.apply(submission(&text(&changed)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    assert_eq!(state(&controller), (RuleState::Confirmed, 4, 5), "another revision must be proven anew");
}

/// Judges a probe by the ACL of the sender's ENI alone.
fn prober(device: &FakeDevice, port: u16, frame: &[u8]) -> Probed {
    let four = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let two = |at: usize| u128::from(u16::from_be_bytes(frame[at..at + 2].try_into().unwrap()));
    let mapped = |a: u32| 0xffff_0000_0000u128 | u128::from(a);
    let key = [u128::from(frame[23]), mapped(four(26)), mapped(four(30)), two(34), two(36)];
    assert_eq!(
        (port, &frame[12..14], four(26)),
        (0, &[8, 0][..], 0x0a00_0001),
        "from blue-1, with its address"
    );
    let fits =
        |e: &&contract::Entry| e.table == vnet::ACL && e.matches.iter().zip(&key).all(|(m, v)| m.matches(*v));
    let hit = device.device.entries.values().filter(fits).min_by_key(|e| (e.priority, e.id));
    let deny = hit.is_none_or(|e| e.action.id == vnet::DENY);
    Probed {
        trace: TraceReport {
            packet: "probe".to_owned(),
            port: "blue-1".to_owned(),
            version: Version(device.version),
            steps: vec![TraceStep {
                executor: Executor::Device,
                stage: "acl".to_owned(),
                entry: hit.map(|e| e.id),
                rule: hit.map(|e| e.rule),
                why: String::new(),
            }],
            executor: Executor::Device,
            state: "none".to_owned(),
            outcome: match deny {
                true => TraceOutcome::Drop { reason: "acl_deny".to_owned() },
                false => TraceOutcome::Forward { port: "blue-2".to_owned() },
            },
        },
        hits: hit.map(|e| e.id).into_iter().collect(),
    }
}

#[test]
fn probes_prove_an_allow_and_a_deny_and_name_who_stands_before_a_shadowed_rule() {
    let mut device = FakeDevice::new(13, &[("acl", 4)], &PORTS);
    device.prober = Some(prober);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    let rules = [
        (1, "deny", "10.0.0.64/26", "any"),
        (2, "allow", "10.0.0.0/24", "any"),
        (3, "deny", "10.0.0.0/25", "any"),
        (4, "allow", "10.1.0.0/16", "any"),
        (5, "deny", "10.2.0.0/16", "any"),
    ];
    controller.apply(submission(&text(&rules)), now).unwrap();
    settle(&mut controller, &mut device, &mut now);
    let mut prove = |rule: &str, controller: &mut Controller<Memory>, device: &mut FakeDevice| {
        let ticket = controller.ask(ApiRequest::RuleProve { id: rule.to_owned() }, now);
        settle(controller, device, &mut now);
        match controller.answer(&ticket) {
            Some(ApiAnswer::Proof(report)) => (report.proven, report.detail, report.probes > 0),
            other => panic!("{other:?}"),
        }
    };
    for rule in ["acl/out/r1", "acl/out/r2", "acl/out/r4"] {
        assert!(prove(rule, &mut controller, &mut device).0, "{rule}");
        let shown = controller.rules().into_iter().find(|r| r.id == rule).unwrap();
        assert_eq!(shown.state, RuleState::Proven);
    }
    let rows = [
        (
            "acl/out/r3",
            "no packet of this device's ENIs can meet it: rules before it take all that it matches, or no ENI uses it",
        ),
        ("acl/out/r5", "no entry of it is in the device: table_full{table=acl,used=4,limit=4}"),
        ("acl/out/r9", "no such rule is in force"),
    ];
    for (rule, detail) in rows {
        assert_eq!(prove(rule, &mut controller, &mut device), (false, detail.to_owned(), false), "{rule}");
    }
    let explanation = controller.explain("acl/out/r5").unwrap();
    assert!(explanation.remedy.unwrap().contains("4 of 4 entries of table acl"));
}

#[test]
fn the_socket_answers_in_json() {
    let mut device = FakeDevice::new(14, &[("acl", 2)], &PORTS);
    let mut now = 0;
    let mut controller = controller(&Memory::default(), now);
    let apply = |text: String, dry_run| ApiRequest::Apply {
        text,
        file: "t.toml".into(),
        author: "me".into(),
        dry_run,
    };
    let bad = controller.ask(apply("schema = 1\nx = 2\n".into(), false), now);
    match controller.answer(&bad) {
        Some(ApiAnswer::Error(lines)) => {
            assert!(lines[0].starts_with("t.toml:2:1: unknown key \"x\""), "{lines:?}")
        }
        other => panic!("{other:?}"),
    }
    let ticket = controller.ask(apply(text(&ALLOWS), false), now);
    assert_eq!(controller.answer(&ticket), None, "not before it is known");
    settle(&mut controller, &mut device, &mut now);
    let applied = controller.answer(&ticket);
    assert_eq!(applied, Some(ApiAnswer::Applied { revision: 1, verdict: Verdict::Confirmed }));
    let dry = controller.ask(apply(text(&ALLOWS[1..]), true), now);
    match controller.answer(&dry) {
        Some(ApiAnswer::Plan(changes)) => {
            assert_eq!((changes.len(), &*changes[0].rule, &*changes[0].what), (1, "acl/out/r10", "removed"));
        }
        other => panic!("{other:?}"),
    }
    let requests = [
        ApiRequest::RuleList,
        ApiRequest::RuleShow { id: "acl/out/r12".into() },
        ApiRequest::RuleExplain { id: "acl/out/r12".into() },
        ApiRequest::RuleExplain { id: "nobody".into() },
        ApiRequest::Diff,
        ApiRequest::Status,
        ApiRequest::Names,
    ];
    for request in requests {
        let line = serde_json::to_string(&request).unwrap();
        let ticket = controller.ask(serde_json::from_str(&line).unwrap(), now);
        let answer = controller.answer(&ticket).unwrap();
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<ApiAnswer>(&line).unwrap(), answer);
    }
    let rules = serde_json::to_value(controller.rules()).unwrap();
    let last = rules.as_array().unwrap().iter().find(|r| r["id"] == "acl/out/r12").unwrap();
    assert_eq!(last["table"], "acl");
    assert_eq!(last["priority"], 12);
    assert_eq!(last["state"], "software");
    assert_eq!(last["reason"], "table_full{table=acl,used=2,limit=2}");
    assert_eq!(
        (&last["hits_device"], &last["hits_host"], &last["entries"]),
        (&0.into(), &0.into(), &"0/1".into())
    );
}
