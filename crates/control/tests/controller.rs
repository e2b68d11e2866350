//! The controller against a device with limits and faults.

mod support;

use contract::schema::{PUNT, vnet};
use control::{Controller, Options, RuleState, Submission, Verdict};
use model::Config;
use store::Memory;
use support::FakeDevice;

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
    let full = |used: u32| Some(format!("table_full{{table=acl,used={used},limit=3}}"));
    let _ = full;
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
