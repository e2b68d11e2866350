//! Routes and mappings.

use std::collections::HashMap;

use super::{Check, Names, Unique};
use crate::desired::RouteAction;
use crate::error::{ConfigErrorKind as Kind, Fault};

pub(super) fn routes(c: &mut Check, enis: &Names, vnets: &Names) {
    let routes = &c.desired.routes;
    let mut prefixes = Unique::new();
    let mut routed = vec![false; c.desired.enis.len()];
    for (i, route) in routes.iter().enumerate() {
        if let Some(eni) = c.resolve(enis, || format!("route[{i}].eni"), &route.eni) {
            routed[eni] = true;
            let path = || format!("route[{i}].prefix");
            if c.is_read(path)
                && let Some(first) = prefixes.claim((eni, route.prefix), i)
            {
                let line = routes[first].span.line;
                let what = format!(
                    "prefix {} of ENI {:?} has a route already (line {line})",
                    route.prefix, route.eni
                );
                c.duplicate(path(), what, "one route per prefix and ENI");
            }
        }
        let path = || format!("route[{i}].vnet");
        match (&route.vnet, route.action_type) {
            (Some(vnet), RouteAction::Vnet) => {
                c.resolve(vnets, path, vnet);
            }
            (None, RouteAction::Vnet) => {
                let what = format!(
                    "missing key \"vnet\" in [[route]] of ENI {:?} with action_type \"vnet\"",
                    route.eni
                );
                c.error(path(), Fault::new(Kind::MissingKey, what).expected("the name of a [[vnet]]"));
            }
            (Some(vnet), RouteAction::Drop) if c.is_read(|| format!("route[{i}].action_type")) => {
                let what = format!("route of ENI {:?} drops, and names VNET {vnet:?}", route.eni);
                c.contradiction(path(), what, "action_type = \"vnet\", or no vnet");
            }
            (_, RouteAction::Drop) => {}
        }
    }
    let complete = c.is_read(|| "route".into());
    for (i, eni) in c.desired.enis.iter().enumerate().filter(|(i, _)| complete && !routed[*i]) {
        c.warning(
            format!("eni[{i}]"),
            format!("ENI {:?} has no route: all it sends is dropped as no_route", eni.name),
        );
    }
}

pub(super) fn mappings(c: &mut Check, enis: &Names, vnets: &Names) {
    let (mappings, all) = (&c.desired.vnet_mappings, &c.desired.enis);
    let mut owners = HashMap::new();
    for eni in all {
        owners.extend(eni.addresses.iter().map(|a| ((eni.vnet.as_str(), *a), eni)));
    }
    let mut addresses = Unique::new();
    for (i, mapping) in mappings.iter().enumerate() {
        let eni = c.resolve(enis, || format!("vnet_mapping[{i}].eni"), &mapping.eni);
        let Some(vnet) = c.resolve(vnets, || format!("vnet_mapping[{i}].vnet"), &mapping.vnet) else {
            continue;
        };
        if let Some(eni) = eni
            && c.is_read(|| format!("eni[{eni}].vnet"))
            && all[eni].vnet != mapping.vnet
        {
            let eni = &all[eni];
            let what = format!("ENI {:?} (line {}) is in VNET {:?}", eni.name, eni.span.line, eni.vnet);
            c.contradiction(
                format!("vnet_mapping[{i}].eni"),
                what,
                &format!("an ENI of VNET {:?}", mapping.vnet),
            );
        }
        let (path, address) = (|| format!("vnet_mapping[{i}].ip_address"), mapping.ip_address);
        if !c.is_read(path) {
            continue;
        }
        if let Some(owner) = owners.get(&(mapping.vnet.as_str(), address)) {
            let what = format!(
                "{address} in VNET {:?} is an address of ENI {:?} (line {}), mapped by itself",
                mapping.vnet, owner.name, owner.span.line
            );
            c.contradiction(path(), what, "an address that no ENI of the VNET states");
        } else if let Some(first) = addresses.claim((vnet, address), i) {
            let line = mappings[first].span.line;
            let what = format!("{address} in VNET {:?} is mapped already (line {line})", mapping.vnet);
            c.duplicate(path(), what, "one mapping per address and VNET");
        }
    }
}
