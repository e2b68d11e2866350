//! Connections that end or lead elsewhere while packets of theirs are about: found by the simulation, kept as rows.

use crate::common::*;
use contract::schema::vnet;
use contract::{Entry, Op, Target};
use packet::DropReason;
use testkit::Build;

const TARGETS: [Target; 2] = [Target::Device, Target::Host];

fn out(f: Family, port: u16) -> Vec<u8> {
    Build::udp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY).ports(1000, port).frame()
}

/// What blue-2 answers; no rule of its own allows it.
fn back(f: Family, port: u16) -> Vec<u8> {
    Build::udp(f.host(2), f.host(1)).macs(mac(BLUE_2), GATEWAY).ports(port, 1000).frame()
}

/// Devices that hold the policy, and that leave all to the host path.
fn benches() -> [Bench; 2] {
    let mut without = Bench::new(config());
    without.install(Target::Host, &tenants().entries, true);
    without.commit();
    [Bench::loaded(config(), &tenants(), &ENIS), without]
}

/// Replaces entries in the sets of tables that hold them.
fn replace(bench: &mut Bench, old: &[&Entry], new: &[Entry]) {
    for target in TARGETS {
        let held = |bench: &mut Bench, e: &Entry| {
            bench.command(contract::Command::Stage(Op::Delete { target, table: e.table, id: e.id })).is_ok()
        };
        if old.iter().all(|e| held(bench, e)) {
            bench.install(target, new, true);
        }
    }
    bench.commit();
}

#[test]
fn first_packets_of_a_refused_connection_end_in_one_drop_each() {
    for f in FAMILIES {
        for mut bench in benches() {
            for _ in 0..5 {
                bench.push(BLUE_1, &out(f, 600)[..]);
            }
            bench.rest();
            assert_eq!(bench.drops(DropReason::AclOutDenied), 5);
        }
    }
}

#[test]
fn an_answer_from_where_a_connection_led_before_is_none() {
    for f in FAMILIES {
        for mut bench in benches() {
            assert_eq!(bench.send(BLUE_1, &out(f, 2000)[..]).fate, Fate::Sent(BLUE_2));
            let mut policy = tenants();
            let stays = policy.entries.len();
            policy.mapping(100, &f.host(2).to_string(), RED_1 as u16, mac(RED_1));
            let (old, new) = policy.entries.split_at(stays);
            let moved = |e: &&Entry| (e.table, e.scope, &e.matches) == (vnet::MAPPING, 100, &new[0].matches);
            let old: Vec<&Entry> = old.iter().filter(moved).collect();
            assert_eq!(old.len(), 1);
            replace(&mut bench, &old, new);
            let fate = bench.send(BLUE_2, &back(f, 2000)[..]).fate;
            assert!(matches!(fate, Fate::Dropped(DropReason::AclOutDenied, _)), "{fate:?}");
            assert_eq!(
                bench.send(BLUE_1, &out(f, 2000)[..]).fate,
                Fate::Sent(RED_1),
                "the connection goes on"
            );
        }
    }
}

#[test]
fn a_connection_is_over_when_another_eni_is_on_its_port() {
    for f in FAMILIES {
        for mut bench in benches() {
            assert_eq!(bench.send(BLUE_1, &out(f, 2000)[..]).fate, Fate::Sent(BLUE_2));
            assert_eq!(bench.send(BLUE_2, &back(f, 2000)[..]).fate, Fate::Sent(BLUE_1));
            let mut policy = tenants();
            let stays = policy.entries.len();
            policy.eni(0, 9, mac(BLUE_1), 100, 0, Default::default());
            policy.route(9, "10.0.0.0/24", Some(100));
            policy.route(9, "fd00::/64", Some(100));
            let (old, new) = policy.entries.split_at(stays);
            let on_port = |e: &&Entry| e.table == vnet::ENI && e.matches == new[0].matches;
            let old: Vec<&Entry> = old.iter().filter(on_port).collect();
            assert_eq!(old.len(), 1);
            replace(&mut bench, &old, new);
            bench.arm(&[9]);
            let fate = bench.send(BLUE_2, &back(f, 2000)[..]).fate;
            assert!(matches!(fate, Fate::Dropped(DropReason::AclOutDenied, _)), "{fate:?}");
            // And the new one may have one with the same addresses and ports, answers included.
            assert_eq!(bench.send(BLUE_1, &out(f, 2000)[..]).fate, Fate::Sent(BLUE_2));
            assert_eq!(bench.send(BLUE_2, &back(f, 2000)[..]).fate, Fate::Sent(BLUE_1));
        }
    }
}
