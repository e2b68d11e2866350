//! The stages that find a destination's VNET, and then its port.

use super::rules::{MappingAction, Mappings, RouteAction, Routes, target};
use crate::prefix::Row;
use crate::scope::Miss;
use packet::{DropReason, PuntReason};
use pipeline::judge::{Judgement, Stage, Step};
use wire::ethernet::MacAddr;
use wire::ip;

/// Looks up the destination in the routes of the ENI that sent the packet, `backward.eni`.
#[derive(Clone, Copy, Debug)]
pub struct ToVnet {
    /// The register that gets the destination's VNET.
    pub vnet: usize,
}

/// Looks up the destination in the mappings of its VNET; sets port and MAC of `forward`.
#[derive(Clone, Copy, Debug)]
pub struct ToPort {
    /// The register that holds the destination's VNET.
    pub vnet: usize,
}

const ROUTE: &str = "route";
const MAPPING: &str = "mapping";

impl<V: AsRef<Routes>> Stage<V> for ToVnet {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        let (eni, dst) = (judgement.backward.eni, judgement.key.dst());
        let &Row { entry, prefix, action } = match view.as_ref().find(u32::from(eni), dst) {
            Ok(row) => row,
            Err(miss) => {
                judgement.note(ROUTE, None, || missed(miss, dst, "route of ENI", u32::from(eni)));
                return miss.step(DropReason::NoRoute);
            }
        };
        judgement.hit(ROUTE, entry, || match action {
            RouteAction::ToVnet(vnet) => format!("entry {entry} leads {prefix} to VNET {vnet}"),
            RouteAction::Drop => format!("entry {entry} drops {prefix}"),
            RouteAction::Punt => format!("entry {entry} punts {prefix}"),
        });
        match action {
            RouteAction::ToVnet(vnet) => {
                judgement.registers[self.vnet] = vnet;
                Step::Continue
            }
            RouteAction::Drop => Step::Drop(DropReason::RouteDrop),
            RouteAction::Punt => Step::Punt(PuntReason::PuntEntry),
        }
    }
}

impl<V: AsRef<Mappings>> Stage<V> for ToPort {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        let (vnet, dst) = (judgement.registers[self.vnet], judgement.key.dst());
        let found = view.as_ref().find(vnet, dst);
        match found {
            Ok(&Row { entry, prefix, action }) => judgement.hit(MAPPING, entry, || match action {
                MappingAction::ToPort { port, mac } => {
                    format!("entry {entry} maps {prefix} to port {port}, {}", MacAddr(mac))
                }
                MappingAction::Punt => format!("entry {entry} punts {prefix}"),
            }),
            Err(miss) => judgement.note(MAPPING, None, || missed(miss, dst, "mapping of VNET", vnet)),
        }
        match target(found) {
            Ok((port, mac)) => {
                judgement.forward.port = port;
                judgement.forward.mac = mac;
                Step::Continue
            }
            Err(step) => step,
        }
    }
}

fn missed(miss: Miss, dst: u128, what: &str, scope: u32) -> String {
    let dst = ip::from_bits(dst);
    match miss {
        Miss::Decide => format!("no {what} {scope} covers {dst}"),
        Miss::Punt => format!("no {what} {scope} covers {dst}, and not all are here: punted"),
    }
}
