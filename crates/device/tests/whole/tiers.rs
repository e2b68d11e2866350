//! Who decides a connection: the device, or the host path where the device has no room or no rules, and back. Whoever it is, both
//! directions go on, and each direction's packets leave in the order in which they came.

use crate::common::*;
use contract::schema::vnet;
use contract::{Op, Target};
use device::Config;
use model::MissPolicy;
use packet::{DropReason, PuntReason};
use testkit::Build;
use wire::ip::protocol::UDP;
use wire::tcp::flags::{ACK, SYN};

/// A device whose flow table has room for one connection.
fn tiny() -> Config {
    let mut config = config();
    config.profile.tables.insert("flow".into(), 2);
    config
}

/// What blue-1 sends from port 1000.
fn out(f: Family, port: u16, payload: &[u8]) -> Vec<u8> {
    Build::udp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY).ports(1000, port).bytes(payload).frame()
}

/// And what blue-2 answers: no rule of its own allows it.
fn back(f: Family, port: u16, payload: &[u8]) -> Vec<u8> {
    Build::udp(f.host(2), f.host(1)).macs(mac(BLUE_2), GATEWAY).ports(port, 1000).bytes(payload).frame()
}

fn send(bench: &mut Bench, port: usize, frame: &[u8]) -> (Fate, Vec<PuntReason>) {
    let outcome = bench.send(port, frame);
    (outcome.fate, outcome.punted)
}

const A: u16 = 2000;
const B: u16 = 2001;

/// The device holds A, the host path B; both were answered, A a long time ago.
fn crowded(f: Family) -> Bench {
    let mut bench = Bench::loaded(tiny(), &tenants(), &ENIS);
    assert_eq!(send(&mut bench, BLUE_1, &out(f, A, b"")), (Fate::Sent(BLUE_2), vec![]));
    assert_eq!(
        send(&mut bench, BLUE_1, &out(f, B, b"")),
        (Fate::Sent(BLUE_2), vec![PuntReason::FlowTableFull])
    );
    let owned = vec![PuntReason::HostOwned];
    assert_eq!(send(&mut bench, BLUE_2, &back(f, B, b"")), (Fate::Sent(BLUE_1), owned));
    assert_eq!(bench.tiers(), (1, 0, 1));
    bench
}

/// Then there is room for B.
fn roomy(f: Family) -> Bench {
    let mut bench = crowded(f);
    // A was never answered, so that it is over after 30 s.
    bench.pass(40);
    assert_eq!(bench.tiers(), (0, 0, 1));
    bench
}

#[test]
fn a_full_flow_table_leaves_a_connection_to_the_host_path() {
    for f in FAMILIES {
        let mut bench = crowded(f);
        let owned = vec![PuntReason::HostOwned];
        for _ in 0..3 {
            assert_eq!(send(&mut bench, BLUE_1, &out(f, B, b"x")), (Fate::Sent(BLUE_2), owned.clone()));
            assert_eq!(send(&mut bench, BLUE_2, &back(f, B, b"y")), (Fate::Sent(BLUE_1), owned.clone()));
        }
        let error = Build::unreachable(f.host(2), &out(f, B, b"x")).macs(mac(BLUE_2), GATEWAY).frame();
        assert_eq!(send(&mut bench, BLUE_2, &error), (Fate::Sent(BLUE_1), owned));
        // The other stays in the device.
        let hits = bench.flow_hits();
        assert_eq!(send(&mut bench, BLUE_2, &back(f, A, b"y")), (Fate::Sent(BLUE_1), vec![]));
        assert_eq!(send(&mut bench, BLUE_1, &out(f, A, b"x")), (Fate::Sent(BLUE_2), vec![]));
        assert_eq!((bench.flow_hits() - hits, bench.tiers()), (2, (1, 0, 1)));
        let flow = bench.device.state().tables.into_iter().find(|(name, ..)| name == "flow");
        assert_eq!(flow, Some(("flow".into(), 2, 2)));
    }
}

#[test]
fn a_connection_goes_into_the_device_when_there_is_room() {
    for f in FAMILIES {
        let mut bench = roomy(f);
        let mut punted = 0;
        while bench.tiers() != (1, 0, 0) {
            let (fate, why) = send(&mut bench, BLUE_1, &out(f, B, b"x"));
            assert_eq!(fate, Fate::Sent(BLUE_2));
            punted += why.len();
            assert!(punted <= 64, "it is offered every 64 frames");
        }
        let hits = bench.flow_hits();
        assert_eq!(send(&mut bench, BLUE_1, &out(f, B, b"x")), (Fate::Sent(BLUE_2), vec![]));
        assert_eq!(send(&mut bench, BLUE_2, &back(f, B, b"y")), (Fate::Sent(BLUE_1), vec![]));
        assert_eq!(bench.flow_hits() - hits, 2);
        // And the next one does not.
        let full = vec![PuntReason::FlowTableFull];
        assert_eq!(send(&mut bench, BLUE_1, &out(f, A, b"x")), (Fate::Sent(BLUE_2), full));
    }
}

#[test]
fn what_conntrack_knows_moves_with_the_connection() {
    for f in FAMILIES {
        let mut bench = Bench::loaded(tiny(), &tenants(), &ENIS);
        send(&mut bench, BLUE_1, &out(f, A, b""));
        let tcp = |flags, seq, ack| {
            let build = Build::tcp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY);
            build.flags(flags).numbers(seq, ack).frame()
        };
        let answer = |flags, seq, ack| {
            let build = Build::tcp(f.host(2), f.host(1)).macs(mac(BLUE_2), GATEWAY).ports(80, 1000);
            build.flags(flags).numbers(seq, ack).frame()
        };
        assert_eq!(send(&mut bench, BLUE_1, &tcp(SYN, 99, 0)).0, Fate::Sent(BLUE_2));
        assert_eq!(send(&mut bench, BLUE_2, &answer(SYN | ACK, 499, 100)).0, Fate::Sent(BLUE_1));
        assert_eq!(send(&mut bench, BLUE_1, &tcp(ACK, 100, 500)).0, Fate::Sent(BLUE_2));
        let invalid = |bench: &mut Bench, at: &str| {
            let expected = Fate::Dropped(DropReason::TcpWindowInvalid, at.into());
            assert_eq!(send(bench, BLUE_1, &tcp(ACK, 10_000_000, 500)).0, expected);
            assert_eq!(send(bench, BLUE_2, &answer(ACK, 500, 900)).0, expected);
        };
        invalid(&mut bench, "host-path-0");
        bench.pass(40);
        for _ in 0..64 {
            assert_eq!(send(&mut bench, BLUE_1, &tcp(ACK, 100, 500)).0, Fate::Sent(BLUE_2));
        }
        assert_eq!(send(&mut bench, BLUE_2, &answer(ACK, 500, 100)), (Fate::Sent(BLUE_1), vec![]));
        assert_eq!(bench.tiers(), (1, 0, 0));
        invalid(&mut bench, "worker-0");
    }
}

#[test]
fn a_denied_connection_ends_wherever_it_is() {
    for f in FAMILIES {
        for port in [A, B] {
            let mut bench = crowded(f);
            let mut policy = tenants();
            let stays = policy.entries.len();
            for group in [11, 111] {
                policy.rule(group, 1, vnet::DENY_TERMINATING, Some(UDP), Some(port));
            }
            for target in [Target::Host, Target::Device] {
                bench.install(target, &policy.entries[stays..], false);
            }
            bench.commit();
            let fate = send(&mut bench, BLUE_1, &out(f, port, b"x")).0;
            assert!(matches!(fate, Fate::Dropped(DropReason::AclOutDenied, _)), "{fate:?}");
            let fate = send(&mut bench, BLUE_2, &back(f, port, b"y")).0;
            assert!(matches!(fate, Fate::Dropped(DropReason::AclOutDenied, _)), "its answers too: {fate:?}");
            // The other goes on.
            let other = A + B - port;
            assert_eq!(send(&mut bench, BLUE_1, &out(f, other, b"x")).0, Fate::Sent(BLUE_2));
            assert_eq!(send(&mut bench, BLUE_2, &back(f, other, b"y")).0, Fate::Sent(BLUE_1));
        }
    }
}

#[test]
fn under_miss_policy_drop_nothing_goes_to_the_host_path() {
    for f in FAMILIES {
        let mut bench = Bench::loaded(Config { miss_policy: MissPolicy::Drop, ..tiny() }, &tenants(), &ENIS);
        let dropped = (Fate::Dropped(DropReason::MissPolicyDrop, "worker-0".into()), vec![]);
        assert_eq!(send(&mut bench, BLUE_1, &out(f, A, b"")), (Fate::Sent(BLUE_2), vec![]));
        for _ in 0..3 {
            assert_eq!(send(&mut bench, BLUE_1, &out(f, B, b"")), dropped, "no room for it");
        }
        assert_eq!(send(&mut bench, BLUE_1, &out(f, 600, b"")).0, {
            Fate::Dropped(DropReason::AclOutDenied, "worker-0".into())
        });
        assert_eq!(send(&mut bench, BLUE_2, &back(f, A, b"")), (Fate::Sent(BLUE_1), vec![]));
        // Without its rules the device cannot decide even the connection that it has.
        for entry in tenants().entries {
            bench.stage(Op::Delete { target: Target::Device, table: entry.table, id: entry.id });
        }
        for group in [11, 12, 13, 111, 112, 113] {
            let (target, miss) = (Target::Device, contract::Miss::Punt);
            bench.stage(Op::SetMiss { target, table: vnet::ACL, scope: group, miss });
        }
        bench.stage(Op::SetMiss {
            target: Target::Device,
            table: vnet::ENI,
            scope: 0,
            miss: contract::Miss::Punt,
        });
        bench.commit();
        assert_eq!(send(&mut bench, BLUE_1, &out(f, A, b"")), dropped);
        assert_eq!(send(&mut bench, BLUE_2, &back(f, A, b"")), dropped);
        // With them, it can again.
        bench.install(Target::Device, &tenants().entries, true);
        bench.commit();
        assert_eq!(send(&mut bench, BLUE_2, &back(f, A, b"")), (Fate::Sent(BLUE_1), vec![]));
        assert_eq!(bench.tiers().2, 0);
    }
}

/// Numbers of chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }
}

/// Both directions of B, numbered, in bursts, with threads stepped by chance; at some steps something is done.
fn stream(bench: &mut Bench, f: Family, seed: u64, mut at: impl FnMut(&mut Bench, u32)) {
    const FRAMES: u32 = 600;
    let mut chance = Chance(seed);
    let mut sent = [0u32; 2];
    let mut received: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
    while sent[0] < FRAMES {
        for (dir, number) in sent.iter_mut().enumerate() {
            for _ in 0..chance.below(6) {
                let payload = number.to_be_bytes();
                match dir {
                    0 => bench.push(BLUE_1, &out(f, B, &payload)[..]),
                    _ => bench.push(BLUE_2, &back(f, B, &payload)[..]),
                }
                *number += 1;
            }
        }
        at(bench, sent[0]);
        for _ in 0..chance.below(5) {
            bench.now += chance.below(100_000);
            match chance.below(2) {
                0 => bench.poll_worker(0),
                _ => bench.poll_host(0),
            };
        }
        collect(bench, f, &mut received);
    }
    bench.rest();
    collect(bench, f, &mut received);
    for (dir, numbers) in received.iter().enumerate() {
        let first_wrong = numbers.iter().zip(0..).find(|(got, expected)| **got != *expected);
        assert_eq!(first_wrong, None, "seed {seed}, direction {dir}: got, in place of");
        assert_eq!(numbers.len() as u32, sent[dir], "seed {seed}, direction {dir}: all of them");
    }
}

fn collect(bench: &Bench, f: Family, received: &mut [Vec<u32>; 2]) {
    for (dir, port) in [BLUE_2, BLUE_1].into_iter().enumerate() {
        let number = |bytes: &[u8]| {
            let at = 14 + f.header() + 8;
            u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
        };
        received[dir].extend(bench.take(port).iter().map(|p| number(&p.bytes)));
    }
}

#[test]
fn order_holds_while_a_connection_goes_into_the_device() {
    for f in FAMILIES {
        for seed in 0..30 {
            let mut bench = roomy(f);
            let hits = bench.flow_hits();
            let owned = |bench: &Bench| bench.ledger().left.host_path[PuntReason::HostOwned.index()].frames;
            let before = owned(&bench);
            stream(&mut bench, f, seed, |_, _| {});
            assert_eq!(bench.tiers(), (1, 0, 0), "seed {seed}");
            assert!(owned(&bench) - before >= 50, "seed {seed}: it began at the host path");
            assert!(bench.flow_hits() - hits >= 100, "seed {seed}: and went on in the device");
        }
    }
}

#[test]
fn order_holds_while_the_device_loses_its_rules_and_gets_them_back() {
    for f in FAMILIES {
        let mut both = 0;
        for seed in 0..30 {
            let mut bench = Bench::loaded(config(), &tenants(), &ENIS);
            assert_eq!(send(&mut bench, BLUE_1, &out(f, B, b"")).0, Fate::Sent(BLUE_2));
            let eni = tenants().entries.into_iter().filter(|e| e.table == vnet::ENI).collect::<Vec<_>>();
            let (mut there, mut next) = (true, 50);
            let punts = |bench: &Bench| bench.ledger().entered.punted.frames;
            stream(&mut bench, f, seed, |bench, sent| {
                if sent < next {
                    return;
                }
                next += 100;
                for entry in &eni {
                    let target = Target::Device;
                    bench.stage(if there {
                        Op::Delete { target, table: entry.table, id: entry.id }
                    } else {
                        Op::Insert { target, entry: entry.clone() }
                    });
                }
                let (table, scope, miss) = (vnet::ENI, 0, contract::Miss::Punt);
                bench.stage(Op::SetMiss { target: Target::Device, table, scope, miss });
                bench.commit_now();
                there = !there;
            });
            both += u32::from(punts(&bench) > 50 && bench.flow_hits() > 50);
        }
        assert!(both > 20, "{both} of 30 streams were carried by both");
    }
}
