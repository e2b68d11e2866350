use super::*;
use crate::prefix::{Row, Table};
use crate::scope::Miss;
use crate::testing::{addr, judge, key, prefix};
use packet::{DropReason, PuntReason};
use pipeline::judge::{Adjacency, Step};
use std::sync::Arc;

const BLUE: Eni = Eni {
    entry: 11,
    port: 2,
    eni: 7,
    mac: [2, 0, 0, 0, 0, 7],
    vnet: 1000,
    anti_spoof: true,
    acl_out: [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]],
    acl_in: [[11, 12, 13, 14, 15], [16, 17, 18, 19, 20]],
};
const RED: Eni = Eni { entry: 12, port: 4, eni: 9, anti_spoof: false, ..BLUE };

fn enis(miss: Miss) -> Enis {
    Enis::build([Entry::Eni(RED), Entry::Eni(BLUE), Entry::Punt { entry: 13, port: 5 }], miss)
}

fn armed(numbers: &[u16], unarmed: Step) -> Enis {
    let mut enis = enis(Miss::Decide);
    enis.armed = Armed::Only(numbers.iter().copied().collect());
    enis.unarmed = unarmed;
    enis
}

const INGRESS: Ingress = Ingress { vnet: 0, groups: 5, anti_spoof: 1 };
const EGRESS: Egress = Egress { groups: 10 };
const TABLE_MISS: Step = Step::Punt(PuntReason::TableMiss);
const PUNT_ENTRY: Step = Step::Punt(PuntReason::PuntEntry);
const NOT_ARMED: Step = Step::Drop(DropReason::NotArmed);

#[test]
fn ingress() {
    let rows = [
        ("an ENI", enis(Miss::Decide), 2, Step::Continue, vec![11]),
        ("no ENI", enis(Miss::Decide), 3, Step::Drop(DropReason::NoEni), vec![]),
        ("beyond all ports", enis(Miss::Decide), 600, Step::Drop(DropReason::NoEni), vec![]),
        ("no ENI here", enis(Miss::Punt), 3, TABLE_MISS, vec![]),
        ("a punt entry", enis(Miss::Decide), 5, PUNT_ENTRY, vec![13]),
        ("armed", armed(&[7], NOT_ARMED), 2, Step::Continue, vec![11]),
        ("not armed: dropped", armed(&[9], NOT_ARMED), 2, NOT_ARMED, vec![]),
        (
            "not armed: to the host path",
            armed(&[], Step::Punt(PuntReason::NotArmed)),
            2,
            Step::Punt(PuntReason::NotArmed),
            vec![],
        ),
    ];
    for (name, enis, port, step, hits) in rows {
        let outcome = judge(&INGRESS, enis, key(6, "10.0.0.1", 1, "10.0.0.2", 2), |j| j.port = port);
        assert_eq!((outcome.step, outcome.hits), (step, hits), "{name}");
    }
}

#[test]
fn ingress_tells_the_stages_behind_what_the_eni_is() {
    for (src, dst, groups) in
        [("10.0.0.1", "10.0.0.2", [1, 2, 3, 4, 5]), ("fd00::1", "fd00::2", [6, 7, 8, 9, 10])]
    {
        let outcome = judge(&INGRESS, enis(Miss::Decide), key(6, src, 1, dst, 2), |j| j.port = 2);
        assert_eq!(outcome.registers[..2], [1000, 1]);
        assert_eq!(outcome.registers[5..10], groups);
        assert_eq!(outcome.backward, Adjacency { port: 2, eni: 7, mac: BLUE.mac });
        assert_eq!(outcome.why, ["eni_in: entry 11: ENI 7 of VNET 1000, 02:00:00:00:00:07, is on port 2"]);
    }
    let outcome = judge(&INGRESS, enis(Miss::Decide), key(6, "10.0.0.1", 1, "10.0.0.2", 2), |j| j.port = 4);
    assert_eq!(outcome.registers[1], 0, "this ENI's sources are not checked");
}

#[test]
fn egress() {
    let rows = [
        ("another ENI", enis(Miss::Decide), 2, Step::Continue, vec![11]),
        ("the ENI that sent it", enis(Miss::Decide), 4, Step::Drop(DropReason::SameEni), vec![12]),
        ("no ENI", enis(Miss::Decide), 3, Step::Drop(DropReason::NoMapping), vec![]),
        ("no ENI here", enis(Miss::Punt), 3, TABLE_MISS, vec![]),
        ("a punt entry", enis(Miss::Decide), 5, PUNT_ENTRY, vec![13]),
        ("not armed", armed(&[9], NOT_ARMED), 2, NOT_ARMED, vec![]),
    ];
    for (name, enis, port, step, hits) in rows {
        let outcome = judge(&EGRESS, enis, key(6, "10.0.0.1", 1, "10.0.0.2", 2), |j| {
            j.backward = Adjacency { port: 4, eni: 9, mac: RED.mac };
            j.forward.port = port;
        });
        assert_eq!((outcome.step, outcome.hits), (step, hits), "{name}");
    }
}

#[test]
fn egress_tells_the_stages_behind_what_the_eni_is() {
    for (src, dst, groups) in
        [("10.0.0.1", "10.0.0.2", [11, 12, 13, 14, 15]), ("fd00::1", "fd00::2", [16, 17, 18, 19, 20])]
    {
        let mac = [2, 0, 0, 0, 0, 99];
        let outcome = judge(&EGRESS, enis(Miss::Decide), key(6, src, 1, dst, 2), |j| {
            j.forward = Adjacency { port: 2, eni: 0, mac };
        });
        assert_eq!(outcome.registers[10..15], groups);
        assert_eq!(outcome.forward, Adjacency { port: 2, eni: 7, mac }, "the mapping's MAC address stays");
    }
}

fn sources(miss: Miss, absent: Miss) -> Sources {
    let permit = |entry, text| Row { entry, prefix: prefix(text), action: SourceAction::Permit };
    let punt = Row { entry: 34, prefix: prefix("10.0.0.77/32"), action: SourceAction::Punt };
    let rows = [permit(31, "10.0.0.0/24"), permit(32, "fd00::5/128"), permit(33, "10.0.0.5/32"), punt];
    let mut sources = Sources::new(absent);
    sources.set(7, Arc::new(Table::build(rows, miss)));
    sources
}

#[test]
fn source() {
    let spoofed = Step::Drop(DropReason::SpoofedIp);
    let all = || sources(Miss::Decide, Miss::Decide);
    let some = || sources(Miss::Punt, Miss::Punt);
    let rows = [
        ("its prefix", all(), 7, "10.0.0.9", Step::Continue, vec![31]),
        ("its address, the longer prefix", all(), 7, "10.0.0.5", Step::Continue, vec![33]),
        ("its IPv6 address", all(), 7, "fd00::5", Step::Continue, vec![32]),
        ("a foreign address", all(), 7, "10.0.1.1", spoofed, vec![]),
        ("a foreign IPv6 address", all(), 7, "fd00::6", spoofed, vec![]),
        ("a punt entry below a permitted prefix", all(), 7, "10.0.0.77", PUNT_ENTRY, vec![34]),
        ("an ENI without sources", all(), 8, "10.0.0.9", spoofed, vec![]),
        ("a foreign address, entries may be missing", some(), 7, "10.0.1.1", TABLE_MISS, vec![]),
        ("an ENI that is not here", some(), 8, "10.0.0.9", TABLE_MISS, vec![]),
    ];
    for (name, sources, eni, src, step, hits) in rows {
        assert_eq!(sources.permits(eni, addr(src)), step, "{name}");
        let outcome = judge(&Source { anti_spoof: 3 }, sources, key(6, src, 1, "10.0.0.2", 2), |j| {
            j.registers[3] = 1;
            j.backward.eni = eni;
        });
        assert_eq!((outcome.step, outcome.hits), (step, hits), "{name}");
        assert_eq!(outcome.why.len(), 1, "{name}");
    }
}

#[test]
fn sources_of_a_trusted_eni_are_not_looked_up() {
    let table = sources(Miss::Decide, Miss::Decide);
    let outcome =
        judge(&Source { anti_spoof: 3 }, table, key(6, "9.9.9.9", 1, "10.0.0.2", 2), |j| j.backward.eni = 7);
    assert_eq!((outcome.step, outcome.hits), (Step::Continue, vec![]));
}

#[test]
fn enis_by_port() {
    let enis = enis(Miss::Decide);
    assert_eq!(enis.iter().map(|eni| eni.eni).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(enis.eni(4), Some(&RED));
    assert_eq!(enis.eni(5), None);
    assert_eq!(enis.eni(0), None);
}
