//! A warm reset: the device loses its tables and flows, and every connection goes on, as soon as the reset policy lets it.

use crate::common::*;
use contract::{Generation, Target, Version};
use device::Config;
use model::ResetPolicy;
use packet::{DropReason, PuntReason};
use testkit::Build;
use testkit::builder::arp_request;
use wire::tcp::flags::{ACK, SYN};

/// Packets of three conversations in both directions, as they are in the midst of them.
fn conversations(f: Family) -> Vec<(usize, Vec<u8>)> {
    let out = |b: Build| (BLUE_1, b.macs(mac(BLUE_1), GATEWAY).frame());
    let back = |b: Build| (BLUE_2, b.macs(mac(BLUE_2), GATEWAY).frame());
    let (a, b) = (f.host(1), f.host(2));
    vec![
        out(Build::tcp(a, b).flags(ACK).numbers(100, 500).payload(8)),
        back(Build::tcp(b, a).ports(80, 1000).flags(ACK).numbers(500, 108).payload(8)),
        out(Build::udp(a, b).ports(1000, 9)),
        back(Build::udp(b, a).ports(9, 1000)),
        out(Build::echo_request(a, b, 3, 2)),
        back(Build::echo_reply(b, a, 3, 2)),
    ]
}

/// The packets that open them.
fn openers(f: Family) -> Vec<(usize, Vec<u8>)> {
    let (a, b) = (f.host(1), f.host(2));
    let syn = Build::tcp(a, b).macs(mac(BLUE_1), GATEWAY).flags(SYN).numbers(99, 0).frame();
    let answer = Build::tcp(b, a).macs(mac(BLUE_2), GATEWAY).ports(80, 1000);
    vec![(BLUE_1, syn), (BLUE_2, answer.flags(SYN | ACK).numbers(499, 100).frame())]
}

fn denied(f: Family) -> Vec<u8> {
    Build::udp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY).ports(1000, 600).frame()
}

fn fresh(f: Family, port: u16) -> Vec<u8> {
    Build::udp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY).ports(1000, port).frame()
}

/// Every packet is delivered; how many of them went to the host path.
fn all_pass(bench: &mut Bench, f: Family) -> usize {
    let mut punted = 0;
    for (port, frame) in conversations(f) {
        let outcome = bench.send(port, &frame[..]);
        assert_eq!(outcome.fate, Fate::Sent(BLUE_1 + BLUE_2 - port), "{f:?}, {:?}", outcome.punted);
        punted += outcome.punted.len();
    }
    punted
}

fn established(policy: ResetPolicy, flows: u32) -> Bench {
    let mut config = Config { reset_policy: policy, ..config() };
    config.profile.tables.insert("flow".into(), flows);
    let mut bench = Bench::loaded(config, &tenants(), &ENIS);
    for f in FAMILIES {
        for (port, frame) in openers(f).into_iter().chain(conversations(f)) {
            assert_eq!(bench.send(port, &frame[..]).fate, Fate::Sent(BLUE_1 + BLUE_2 - port));
        }
    }
    bench
}

fn reset(bench: &mut Bench) {
    let before = bench.ledger();
    bench.warm_reset();
    let state = bench.device.state();
    assert_eq!((state.generation, state.version), (Generation(2), Version(1)));
    assert_eq!(state.armed, [0u16; 0]);
    assert!(state.tables.iter().all(|(_, used, _)| *used == 0), "{:?}", state.tables);
    assert_eq!(bench.ledger(), before, "counters stay");
}

fn reload(bench: &mut Bench) {
    bench.install(Target::Device, &tenants().entries, true);
    bench.commit();
    bench.arm(&ENIS);
}

#[test]
fn under_reset_policy_host_nothing_stops() {
    for flows in [u32::MAX, 6, 0] {
        let mut bench = established(ResetPolicy::Host, flows);
        let device = bench.tiers().0;
        assert_eq!(device, u64::from(flows / 2).min(6));
        reset(&mut bench);
        for round in 0..3 {
            for f in FAMILIES {
                assert_eq!(all_pass(&mut bench, f), 6, "all by the host path");
                let outcome = bench.send(BLUE_1, &denied(f)[..]);
                let by_host = Fate::Dropped(DropReason::AclOutDenied, "host-path-0".into());
                assert_eq!((outcome.fate, outcome.punted), (by_host, vec![PuntReason::NotArmed]));
                assert_eq!(bench.send(BLUE_1, &fresh(f, 3000 + round)[..]).fate, Fate::Sent(BLUE_2));
            }
            bench.pass(2);
        }
        assert_eq!(bench.tiers(), (0, 0, 12), "those of before, and the new ones");
        let asked = arp_request(mac(BLUE_1), [10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        assert!(matches!(bench.send(BLUE_1, &asked[..]).fate, Fate::Answered(.., at) if at == "host-path-0"));
        reload(&mut bench);
        for f in FAMILIES {
            all_pass(&mut bench, f);
            let fate = bench.send(BLUE_1, &denied(f)[..]).fate;
            assert_eq!(fate, Fate::Dropped(DropReason::AclOutDenied, "worker-0".into()));
        }
        if flows == u32::MAX {
            let hits = bench.flow_hits();
            let punted: usize = FAMILIES.iter().map(|f| all_pass(&mut bench, *f)).sum();
            assert_eq!((punted, bench.flow_hits() - hits), (0, 12), "all in the device again");
        }
        for reason in [DropReason::TcpNoConnection, DropReason::IcmpNoConnection, DropReason::NotArmed] {
            assert_eq!(bench.drops(reason), 0, "{reason}");
        }
    }
}

#[test]
fn under_reset_policy_deny_all_waits_until_it_is_armed() {
    let mut bench = established(ResetPolicy::Deny, u32::MAX);
    reset(&mut bench);
    let not_armed = Fate::Dropped(DropReason::NotArmed, "worker-0".into());
    for _ in 0..3 {
        for f in FAMILIES {
            let others = [(BLUE_1, denied(f)), (BLUE_1, fresh(f, 3000))];
            for (port, frame) in conversations(f).into_iter().chain(others) {
                assert_eq!(bench.send(port, &frame[..]).fate, not_armed);
            }
        }
        bench.pass(2);
    }
    assert_eq!(bench.ledger().entered.punted.frames, 0, "nothing went to the host path");
    // Rules alone are not enough.
    bench.install(Target::Device, &tenants().entries, true);
    bench.commit();
    for f in FAMILIES {
        for (port, frame) in conversations(f) {
            assert_eq!(bench.send(port, &frame[..]).fate, not_armed);
        }
    }
    bench.arm(&ENIS);
    let hits = bench.flow_hits();
    for f in FAMILIES {
        assert_eq!(all_pass(&mut bench, f), 0, "without the host path");
        let fate = bench.send(BLUE_1, &denied(f)[..]).fate;
        assert_eq!(fate, Fate::Dropped(DropReason::AclOutDenied, "worker-0".into()));
    }
    assert_eq!((bench.flow_hits() - hits, bench.tiers()), (12, (6, 0, 0)), "the connections of before");
}

#[test]
fn a_connection_that_the_new_policy_denies_does_not_come_back() {
    for policy in [ResetPolicy::Host, ResetPolicy::Deny] {
        for f in FAMILIES {
            let mut bench = established(policy, u32::MAX);
            reset(&mut bench);
            // As before, but blue-2 accepts nothing any more.
            let mut changed = tenants();
            let stays = changed.entries.len();
            for group in [13, 113] {
                changed.rule(group, 1, contract::schema::vnet::DENY_TERMINATING, None, None);
            }
            bench.install(Target::Host, &changed.entries[stays..], false);
            bench.install(Target::Device, &changed.entries, true);
            bench.commit();
            bench.arm(&ENIS);
            for (port, frame) in conversations(f) {
                let Fate::Dropped(reason, _) = bench.send(port, &frame[..]).fate else { panic!("{port}") };
                let expected =
                    if port == BLUE_1 { DropReason::AclInDenied } else { DropReason::AclOutDenied };
                let echo = reason == DropReason::IcmpNoConnection;
                assert!(reason == expected || echo && port == BLUE_2, "{reason}, {policy:?}, {f:?}");
            }
        }
    }
}

#[test]
fn under_reset_policy_deny_connections_of_the_host_path_wait_too() {
    let mut bench = established(ResetPolicy::Deny, 0);
    assert_eq!(bench.tiers(), (0, 0, 6));
    reset(&mut bench);
    for f in FAMILIES {
        for (port, frame) in conversations(f) {
            let fate = Fate::Dropped(DropReason::NotArmed, "worker-0".into());
            assert_eq!(bench.send_traced(port, &frame).fate, fate);
        }
    }
    reload(&mut bench);
    for f in FAMILIES {
        all_pass(&mut bench, f);
    }
}
