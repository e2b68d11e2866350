use super::*;
use crate::prefix::Prefix;
use crate::scope::Miss;
use crate::testing::{Outcome, addr, judge, key, prefix};
use packet::{DropReason, PuntReason};
use pipeline::judge::Step;
use pipeline::key::{FlowKey, FlowKind};
use proptest::prelude::*;
use std::sync::Arc;
use wire::ip;

const TCP: u8 = 6;
const UDP: u8 = 17;
const DENIED: Step = Step::Drop(DropReason::AclOutDenied);

fn rule(entry: u32, priority: u32, proto: Option<u8>, src: &str, dst: &str, action: Action) -> Rule {
    let (src, dst) = (prefix(src), prefix(dst));
    Rule {
        entry,
        priority,
        protocol: proto,
        src,
        dst,
        sport: PortRange::ANY,
        dport: PortRange::ANY,
        action,
        terminating: false,
    }
}

fn terminating(rule: Rule) -> Rule {
    Rule { terminating: true, ..rule }
}

/// Stage 1 has the first of `groups`, and so on; `None` is a stage without a group.
fn ask_with(groups: Groups, numbers: [u32; 5], key: FlowKey) -> Outcome {
    let stage = Stage { name: "acl_out", groups: 3, deny: DropReason::AclOutDenied };
    judge(&stage, groups, key, |j| j.registers[3..8].copy_from_slice(&numbers))
}

fn ask(groups: &[Option<&[Rule]>], miss: Miss, key: FlowKey) -> Outcome {
    let mut all = Groups::new(Miss::Decide);
    let mut numbers = [0; 5];
    for (index, group) in groups.iter().enumerate() {
        if let Some(rules) = group {
            numbers[index] = 100 + index as u32;
            all.set(numbers[index], Arc::new(Group::build(rules.iter().copied(), miss)));
        }
    }
    ask_with(all, numbers, key)
}

/// The table of DASH's documentation (README of the DASH material), all of its answers.
#[test]
fn dash_table() {
    use Action::{Allow, Deny};
    let any = "any";
    let level_1 = [
        rule(1, 0, Some(TCP), any, "10.0.0.10/32", Allow),
        rule(2, 0, Some(TCP), any, "10.0.0.11/32", Allow),
        rule(3, 0, Some(TCP), any, "10.0.0.12/32", Allow),
        rule(4, 0, Some(TCP), any, "10.0.0.13/32", Allow),
        rule(5, 0, Some(TCP), any, "10.0.0.14/32", Allow),
        rule(6, 0, Some(TCP), any, "30.0.0.0/24", Allow),
        rule(7, 1, Some(TCP), any, "10.0.0.200/32", Allow),
        terminating(rule(8, 2, Some(TCP), any, "10.0.0.201/32", Deny)),
        terminating(rule(9, 3, Some(TCP), any, "10.0.0.202/32", Allow)),
        rule(10, 4, Some(TCP), any, "10.0.0.203/32", Allow),
        terminating(rule(11, 5, None, any, "8.8.8.8/32", Deny)),
        terminating(rule(12, 6, None, any, "8.8.8.8/32", Allow)),
        terminating(rule(13, 7, None, any, "9.9.9.9/32", Allow)),
        rule(14, 8, None, any, any, Deny),
    ];
    let level_2 = [
        terminating(rule(21, 0, Some(TCP), any, "10.0.0.202/32", Deny)),
        terminating(rule(22, 0, Some(TCP), any, "10.0.0.203/32", Deny)),
        rule(23, 1, Some(TCP), "10.0.0.0/24", any, Allow),
        rule(24, 2, None, any, "8.8.8.8/32", Allow),
        terminating(rule(25, 2, None, any, "9.9.9.9/32", Deny)),
        rule(26, 2, None, any, "1.1.1.2/32", Allow),
        rule(27, 3, None, any, any, Deny),
    ];
    let rows: [(u8, &str, Step, &[u32]); 9] = [
        (TCP, "10.0.0.200", Step::Continue, &[7, 23]),
        (TCP, "10.0.0.201", DENIED, &[8]),
        (TCP, "10.0.0.202", Step::Continue, &[9]),
        (TCP, "10.0.0.203", DENIED, &[10, 22]),
        (TCP, "8.8.8.8", DENIED, &[11]),
        (TCP, "9.9.9.9", Step::Continue, &[13]),
        (UDP, "1.1.1.1", DENIED, &[14, 27]),
        (UDP, "1.1.1.2", Step::Continue, &[14, 26]),
        (TCP, "1.1.1.1", Step::Continue, &[14, 23]),
    ];
    for (proto, dst, step, hits) in rows {
        let key = key(proto, "10.0.0.100", 5000, dst, 80);
        let outcome = ask(&[Some(&level_1), Some(&level_2)], Miss::Decide, key);
        assert_eq!((outcome.step, &outcome.hits[..]), (step, hits), "{key}");
    }
}

#[test]
fn stages() {
    use Action::{Allow, Deny, Punt};
    let any = |entry, action| rule(entry, 0, None, "any", "any", action);
    let other = |entry, action| rule(entry, 0, None, "any", "10.9.9.9/32", action);
    let (allow, deny, punt) = ([any(1, Allow)], [any(2, Deny)], [any(3, Punt)]);
    let (final_allow, final_deny) = ([terminating(any(4, Allow))], [terminating(any(5, Deny))]);
    let unmatched = [other(6, Allow)];
    let table_miss = Step::Punt(PuntReason::TableMiss);
    let punted = Step::Punt(PuntReason::PuntEntry);
    type Row<'r> = (&'static str, &'r [Option<&'r [Rule]>], Miss, Step, &'r [u32]);
    let rows: [Row; 14] = [
        ("no group allows", &[], Miss::Decide, Step::Continue, &[]),
        ("a stage without a group is skipped", &[None, None, Some(&deny)], Miss::Decide, DENIED, &[2]),
        (
            "the last answer counts: allow",
            &[Some(&deny), None, Some(&allow)],
            Miss::Decide,
            Step::Continue,
            &[2, 1],
        ),
        ("the last answer counts: deny", &[Some(&allow), Some(&deny)], Miss::Decide, DENIED, &[1, 2]),
        ("a terminating allow ends", &[Some(&final_allow), Some(&deny)], Miss::Decide, Step::Continue, &[4]),
        ("a terminating deny ends", &[Some(&final_deny), Some(&allow)], Miss::Decide, DENIED, &[5]),
        ("no match denies and ends", &[Some(&unmatched), Some(&allow)], Miss::Decide, DENIED, &[]),
        ("no match after an allow denies", &[Some(&allow), Some(&unmatched)], Miss::Decide, DENIED, &[1]),
        ("no match where rules may be missing", &[Some(&unmatched)], Miss::Punt, table_miss, &[]),
        ("a match where rules may be missing", &[Some(&allow)], Miss::Punt, Step::Continue, &[1]),
        ("a punt punts", &[Some(&punt)], Miss::Decide, punted, &[3]),
        (
            "a punt after an answer punts",
            &[Some(&deny), Some(&punt), Some(&allow)],
            Miss::Decide,
            punted,
            &[2, 3],
        ),
        ("a punt that is not reached", &[Some(&final_deny), Some(&punt)], Miss::Decide, DENIED, &[5]),
        (
            "all five stages",
            &[Some(&allow), Some(&deny), Some(&allow), Some(&deny), Some(&allow)],
            Miss::Decide,
            Step::Continue,
            &[1, 2, 1, 2, 1],
        ),
    ];
    for (name, groups, miss, step, hits) in rows {
        let outcome = ask(groups, miss, key(TCP, "10.0.0.1", 1, "10.0.0.2", 2));
        assert_eq!((outcome.step, &outcome.hits[..]), (step, hits), "{name}");
    }
}

#[test]
fn a_group_that_was_never_set_answers_as_the_tables_do() {
    for (absent, step) in [(Miss::Punt, Step::Punt(PuntReason::TableMiss)), (Miss::Decide, DENIED)] {
        let outcome = ask_with(Groups::new(absent), [0, 9, 0, 0, 0], key(TCP, "10.0.0.1", 1, "10.0.0.2", 2));
        assert_eq!(outcome.step, step);
    }
}

#[test]
fn the_inbound_stage_denies_under_its_own_name() {
    let mut groups = Groups::new(Miss::Decide);
    groups.set(1, Arc::new(Group::build([], Miss::Decide)));
    let stage = Stage { name: "acl_in", groups: 0, deny: DropReason::AclInDenied };
    let outcome = judge(&stage, groups, key(TCP, "10.0.0.1", 1, "10.0.0.2", 2), |j| j.registers[0] = 1);
    assert_eq!(outcome.step, Step::Drop(DropReason::AclInDenied));
}

#[test]
fn rules_match_what_they_say() {
    let base = rule(1, 0, None, "any", "any", Action::Allow);
    let web = Rule { protocol: Some(TCP), dport: PortRange::exact(80), ..base };
    let any_web = Rule { dport: PortRange::exact(80), ..base };
    let high = Rule { sport: PortRange { lo: 1024, hi: 65535 }, ..base };
    let net = rule(1, 0, None, "10.0.0.0/24", "fd00::/64", Action::Allow);
    let from_net = rule(1, 0, None, "10.0.0.0/24", "any", Action::Allow);
    let icmp = Rule { protocol: Some(1), ..base };
    let tcp = |sport, dport| key(TCP, "10.0.0.1", sport, "10.0.0.2", dport);
    let echo = |id| FlowKey::echo(addr("10.0.0.1"), addr("10.0.0.2"), id, 1, FlowKind::EchoRequest);
    let rows = [
        ("anything", base, tcp(1, 2), true),
        ("anything, without ports", base, key(47, "10.0.0.1", 0, "10.0.0.2", 0), true),
        ("its port", web, tcp(5000, 80), true),
        ("the port below", web, tcp(5000, 79), false),
        ("the source's port", web, tcp(80, 5000), false),
        ("another protocol", web, key(UDP, "10.0.0.1", 5000, "10.0.0.2", 80), false),
        ("a port in any protocol: UDP", any_web, key(UDP, "10.0.0.1", 5000, "10.0.0.2", 80), true),
        ("an identifier is no port", any_web, echo(80), false),
        ("an identifier is no source port", high, echo(2000), false),
        ("a range's lower end", high, tcp(1024, 1), true),
        ("below the range", high, tcp(1023, 1), false),
        ("a range's upper end", high, tcp(65535, 1), true),
        ("no ports at all", high, key(50, "10.0.0.1", 0, "10.0.0.2", 0), false),
        ("ICMP", icmp, echo(80), true),
        ("its prefix", from_net, tcp(1, 2), true),
        ("beside its prefix", from_net, key(TCP, "10.0.1.1", 1, "10.0.0.2", 2), false),
        ("an IPv4 source is no IPv6 one", from_net, key(TCP, "fd00::1", 1, "fd00::2", 2), false),
        ("both ends", net, tcp(1, 2), false),
    ];
    for (name, rule, key, matches) in rows {
        let group = Group::build([rule], Miss::Decide);
        assert_eq!(group.lookup(&key).is_ok(), matches, "{name}: {rule}, {key}");
    }
}

#[test]
fn of_one_priority_the_lowest_entry_id_counts() {
    let allow = rule(7, 5, None, "any", "any", Action::Allow);
    let deny = rule(3, 5, None, "any", "any", Action::Deny);
    for rules in [[allow, deny], [deny, allow]] {
        let outcome = ask(&[Some(&rules)], Miss::Decide, key(TCP, "10.0.0.1", 1, "10.0.0.2", 2));
        assert_eq!((outcome.step, &outcome.hits[..]), (DENIED, &[3][..]));
    }
}

#[test]
fn a_trace_says_why() {
    let deny = Rule {
        dport: PortRange::exact(80),
        ..terminating(rule(17, 10, Some(TCP), "10.0.0.0/24", "any", Action::Deny))
    };
    let outcome = ask(&[None, Some(&[deny])], Miss::Decide, key(TCP, "10.0.0.1", 5000, "10.0.0.2", 80));
    assert_eq!(
        outcome.why,
        [
            "acl_out: stage 2, group 101: entry 17 (priority 10) denies, terminating: tcp 10.0.0.0/24 > any port 80"
        ]
    );
    let outcome = ask(&[Some(&[deny])], Miss::Decide, key(TCP, "10.0.0.1", 5000, "10.0.0.2", 81));
    assert_eq!(outcome.why, ["acl_out: stage 1, group 100: no entry matches: denied"]);
    let outcome = ask(&[], Miss::Decide, key(TCP, "10.0.0.1", 5000, "10.0.0.2", 81));
    assert_eq!(outcome.why, ["acl_out: no stage has a group: allowed"]);
}

#[test]
fn rules_in_words() {
    let base = rule(1, 0, None, "any", "any", Action::Allow);
    let rows = [
        (base, "any any > any"),
        (
            Rule { protocol: Some(UDP), dport: PortRange { lo: 53, hi: 54 }, ..base },
            "udp any > any port 53-54",
        ),
        (Rule { protocol: Some(58), src: prefix("fd00::/64"), ..base }, "icmpv6 fd00::/64 > any"),
        (Rule { protocol: Some(99), dst: prefix("10.0.0.2/32"), ..base }, "proto-99 any > 10.0.0.2/32"),
    ];
    for (rule, text) in rows {
        assert_eq!(rule.to_string(), text);
    }
}

/// The slow reference: the words of the standard program, one rule after the other.
mod reference {
    use super::*;

    fn covers(prefix: Prefix, address: u128) -> bool {
        (0..u32::from(prefix.len)).all(|bit| (prefix.addr ^ address) >> (127 - bit) & 1 == 0)
    }

    fn matches(rule: &Rule, key: &FlowKey) -> bool {
        let full = |range: PortRange| (range.lo, range.hi) == (0, 65535);
        let in_range = |range: PortRange, port: u16| {
            full(range) || [TCP, UDP].contains(&key.proto) && (range.lo..=range.hi).contains(&port)
        };
        rule.protocol.is_none_or(|p| p == key.proto)
            && covers(rule.src, key.src())
            && covers(rule.dst, key.dst())
            && in_range(rule.sport, key.sport)
            && in_range(rule.dport, key.dport)
    }

    pub fn judge(groups: &[Option<Vec<Rule>>], miss: Miss, key: &FlowKey) -> (Step, Vec<u32>) {
        let mut hits = Vec::new();
        let mut answer = Step::Continue;
        for rules in groups.iter().flatten() {
            let best =
                rules.iter().filter(|rule| matches(rule, key)).min_by_key(|rule| (rule.priority, rule.entry));
            let Some(rule) = best else {
                let step = if miss == Miss::Punt { Step::Punt(PuntReason::TableMiss) } else { DENIED };
                return (step, hits);
            };
            hits.push(rule.entry);
            answer = match rule.action {
                Action::Allow => Step::Continue,
                Action::Deny => DENIED,
                Action::Punt => return (Step::Punt(PuntReason::PuntEntry), hits),
            };
            if rule.terminating {
                break;
            }
        }
        (answer, hits)
    }
}

/// Few addresses, ports and protocols, so that rules overlap and packets match several.
fn small_prefix() -> impl Strategy<Value = Prefix> {
    prop_oneof![
        1 => Just(Prefix::ANY),
        4 => (0u128..8, 122u8..=128).prop_map(|(bits, len)| Prefix { addr: ip::V4_MAPPED | bits, len }),
    ]
}

fn small_range() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        3 => Just(PortRange::ANY),
        1 => (0u16..6).prop_map(PortRange::exact),
        1 => (0u16..4, 0u16..4).prop_map(|(lo, more)| PortRange { lo, hi: lo + more }),
    ]
}

fn small_protocol() -> impl Strategy<Value = u8> {
    prop::sample::select(vec![1u8, TCP, UDP, 47])
}

fn small_group() -> impl Strategy<Value = Vec<Rule>> {
    let action =
        prop::sample::select(vec![Action::Allow, Action::Allow, Action::Deny, Action::Deny, Action::Punt]);
    let rule = (
        (0u32..4, prop::option::of(small_protocol())),
        (small_prefix(), small_prefix()),
        (small_range(), small_range()),
        (action, any::<bool>()),
    );
    proptest::collection::vec(rule, 0..24).prop_map(|rules| {
        let rule =
            |(entry, ((priority, protocol), (src, dst), (sport, dport), (action, terminating)))| Rule {
                // Not in the order of the list, and each once.
                entry: (entry as u32 * 17) % 31,
                priority,
                protocol,
                src,
                dst,
                sport,
                dport,
                action,
                terminating,
            };
        rules.into_iter().enumerate().map(rule).collect()
    })
}

proptest! {
    #[test]
    fn answers_equal_the_reference(
        groups in proptest::collection::vec(prop::option::weighted(0.8, small_group()), 0..=5),
        keys in proptest::collection::vec((0u128..8, 0u128..8, 0u16..6, 0u16..6, small_protocol()), 1..20),
        complete: bool,
    ) {
        let miss = if complete { Miss::Decide } else { Miss::Punt };
        for (src, dst, sport, dport, proto) in keys {
            let key = FlowKey::new(ip::V4_MAPPED | src, ip::V4_MAPPED | dst, sport, dport, proto);
            let as_slices: Vec<Option<&[Rule]>> = groups.iter().map(Option::as_deref).collect();
            let outcome = ask(&as_slices, miss, key);
            prop_assert_eq!((outcome.step, outcome.hits), reference::judge(&groups, miss, &key));
        }
    }
}
