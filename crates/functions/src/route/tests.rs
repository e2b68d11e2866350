use super::*;
use crate::prefix::{Row, Table};
use crate::scope::Miss;
use crate::testing::{addr, judge, key, prefix};
use packet::{DropReason, PuntReason};
use pipeline::judge::{Adjacency, Step};
use std::sync::Arc;

const TABLE_MISS: Step = Step::Punt(PuntReason::TableMiss);
const PUNT_ENTRY: Step = Step::Punt(PuntReason::PuntEntry);

fn routes(miss: Miss, absent: Miss) -> Routes {
    let route = |entry, text, action| Row { entry, prefix: prefix(text), action };
    let rows = [
        route(1, "0.0.0.0/0", RouteAction::ToVnet(100)),
        route(2, "10.0.0.0/8", RouteAction::ToVnet(200)),
        route(3, "10.1.0.0/16", RouteAction::Drop),
        route(4, "10.1.1.0/24", RouteAction::Punt),
        route(5, "fd00::/64", RouteAction::ToVnet(300)),
    ];
    let mut routes = Routes::new(absent);
    routes.set(7, Arc::new(Table::build(rows, miss)));
    routes
}

#[test]
fn routes_lead_to_vnets() {
    let no_route = Step::Drop(DropReason::NoRoute);
    let all = || routes(Miss::Decide, Miss::Decide);
    let some = || routes(Miss::Punt, Miss::Punt);
    let rows = [
        ("the default", all(), 7, "9.9.9.9", Step::Continue, 100, vec![1]),
        ("the longer prefix", all(), 7, "10.9.9.9", Step::Continue, 200, vec![2]),
        ("a route that drops", all(), 7, "10.1.9.9", Step::Drop(DropReason::RouteDrop), 0, vec![3]),
        ("a punt entry", all(), 7, "10.1.1.9", PUNT_ENTRY, 0, vec![4]),
        ("IPv6", all(), 7, "fd00::9", Step::Continue, 300, vec![5]),
        ("the IPv4 default is not for IPv6", all(), 7, "fd01::9", no_route, 0, vec![]),
        ("an ENI without routes", all(), 8, "10.9.9.9", no_route, 0, vec![]),
        ("no route here", some(), 7, "fd01::9", TABLE_MISS, 0, vec![]),
        ("an ENI that is not here", some(), 8, "10.9.9.9", TABLE_MISS, 0, vec![]),
    ];
    for (name, routes, eni, dst, step, vnet, hits) in rows {
        let src = if dst.contains(':') { "fd00::1" } else { "10.0.0.1" };
        let outcome = judge(&ToVnet { vnet: 4 }, routes, key(6, src, 1, dst, 2), |j| j.backward.eni = eni);
        assert_eq!((outcome.step, outcome.registers[4], outcome.hits), (step, vnet, hits), "{name}");
    }
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];

fn mappings(miss: Miss, absent: Miss) -> Mappings {
    let mapping = |entry, text, action| Row { entry, prefix: prefix(text), action };
    let rows = [
        mapping(1, "10.0.0.3/32", MappingAction::ToPort { port: 3, mac: MAC }),
        mapping(2, "10.0.0.0/24", MappingAction::ToPort { port: 4, mac: [2, 0, 0, 0, 0, 4] }),
        mapping(3, "10.0.0.77/32", MappingAction::Punt),
    ];
    let mut mappings = Mappings::new(absent);
    mappings.set(200, Arc::new(Table::build(rows, miss)));
    mappings
}

#[test]
fn mappings_lead_to_ports() {
    let no_mapping = Step::Drop(DropReason::NoMapping);
    let all = || mappings(Miss::Decide, Miss::Decide);
    let some = || mappings(Miss::Punt, Miss::Punt);
    let here = Adjacency { port: 3, eni: 0, mac: MAC };
    let net = Adjacency { port: 4, eni: 0, mac: [2, 0, 0, 0, 0, 4] };
    let none = Adjacency::default();
    let rows = [
        ("an address", all(), 200, "10.0.0.3", Step::Continue, here, vec![1]),
        ("a prefix", all(), 200, "10.0.0.4", Step::Continue, net, vec![2]),
        ("a punt entry", all(), 200, "10.0.0.77", PUNT_ENTRY, none, vec![3]),
        ("unknown", all(), 200, "10.0.1.3", no_mapping, none, vec![]),
        ("another VNET", all(), 100, "10.0.0.3", no_mapping, none, vec![]),
        ("no mapping here", some(), 200, "10.0.1.3", TABLE_MISS, none, vec![]),
        ("a VNET that is not here", some(), 100, "10.0.0.3", TABLE_MISS, none, vec![]),
    ];
    for (name, mappings, vnet, dst, step, forward, hits) in rows {
        let looked_up = mappings.lookup(vnet, addr(dst));
        let outcome = judge(&ToPort { vnet: 4 }, mappings, key(6, "10.0.0.1", 1, dst, 2), |j| {
            j.registers[4] = vnet;
        });
        assert_eq!((outcome.step, outcome.forward, outcome.hits), (step, forward, hits), "{name}");
        let expected = if step == Step::Continue { Ok((forward.port, forward.mac)) } else { Err(step) };
        assert_eq!(looked_up, expected, "{name}");
    }
}

#[test]
fn a_trace_says_why() {
    let outcome = judge(
        &ToVnet { vnet: 4 },
        routes(Miss::Decide, Miss::Decide),
        key(6, "fd00::1", 1, "fd01::9", 2),
        |j| j.backward.eni = 7,
    );
    assert_eq!(outcome.why, ["route: no route of ENI 7 covers fd01::9"]);
    let table = mappings(Miss::Decide, Miss::Decide);
    let outcome =
        judge(&ToPort { vnet: 4 }, table, key(6, "10.0.0.1", 1, "10.0.0.3", 2), |j| j.registers[4] = 200);
    assert_eq!(outcome.why, ["mapping: entry 1 maps 10.0.0.3/32 to port 3, 02:00:00:00:00:03"]);
}
