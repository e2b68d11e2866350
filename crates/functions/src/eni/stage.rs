//! The stages that find the ENI at either end, and that check the source.

use super::rules::{Eni, Enis, Entry, SourceAction, Sources, StageGroups, permitted};
use crate::prefix::Row;
use crate::scope::Miss;
use packet::{DropReason, PuntReason};
use pipeline::judge::{Adjacency, Judgement, Stage, Step};
use wire::ethernet::MacAddr;

/// Finds the ENI of the port where packets come in; sets `backward`.
#[derive(Clone, Copy, Debug)]
pub struct Ingress {
    /// The register that gets the ENI's VNET.
    pub vnet: usize,
    /// The first of five registers that get the groups of the outbound ACL.
    pub groups: usize,
    /// The register that gets 1 if the source is to be checked, else 0.
    pub anti_spoof: usize,
}

/// Checks that the source address is one of the ENI's. It comes after [`Ingress`].
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The register that says whether to check, as [`Ingress::anti_spoof`].
    pub anti_spoof: usize,
}

/// Finds the ENI behind the port where packets leave, `forward.port`; sets `forward.eni`.
#[derive(Clone, Copy, Debug)]
pub struct Egress {
    /// The first of five registers that get the groups of the inbound ACL.
    pub groups: usize,
}

const INGRESS: &str = "eni_in";
const SOURCE: &str = "source";
const EGRESS: &str = "eni_out";

impl<V: AsRef<Enis>> Stage<V> for Ingress {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        let eni = match armed(view.as_ref(), judgement.port, INGRESS, DropReason::NoEni, judgement) {
            Ok(eni) => eni,
            Err(step) => return step,
        };
        judgement.registers[self.vnet] = eni.vnet;
        judgement.registers[self.anti_spoof] = u32::from(eni.anti_spoof);
        set_groups(judgement, self.groups, &eni.acl_out);
        judgement.backward = Adjacency { port: eni.port, eni: eni.eni, mac: eni.mac };
        Step::Continue
    }
}

impl<V: AsRef<Sources>> Stage<V> for Source {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        if judgement.registers[self.anti_spoof] == 0 {
            judgement.note(SOURCE, None, || "sources are not checked".into());
            return Step::Continue;
        }
        let (eni, src) = (judgement.backward.eni, judgement.key.src());
        let found = view.as_ref().find(u32::from(eni), src);
        match found {
            Ok(&Row { entry, prefix, action }) => {
                judgement.hit(SOURCE, entry, || match action {
                    SourceAction::Permit => format!("entry {entry} permits {prefix} to ENI {eni}"),
                    SourceAction::Punt => format!("entry {entry} punts {prefix}"),
                });
            }
            Err(miss) => judgement.note(SOURCE, None, || match miss {
                Miss::Decide => format!("{} is not an address of ENI {eni}", wire::ip::from_bits(src)),
                Miss::Punt => {
                    format!("no entry for {}, and not all are here: punted", wire::ip::from_bits(src))
                }
            }),
        }
        permitted(found)
    }
}

impl<V: AsRef<Enis>> Stage<V> for Egress {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        let port = judgement.forward.port;
        let eni = match armed(view.as_ref(), port, EGRESS, DropReason::NoMapping, judgement) {
            Ok(eni) => eni,
            Err(step) => return step,
        };
        judgement.forward.eni = eni.eni;
        if eni.eni == judgement.backward.eni {
            judgement.note(EGRESS, None, || format!("ENI {} is where it came from", eni.eni));
            return Step::Drop(DropReason::SameEni);
        }
        set_groups(judgement, self.groups, &eni.acl_in);
        Step::Continue
    }
}

/// The ENI on `port` if it may send and receive, and a note of it; else how to go on, with `missing` for a port without ENI.
fn armed<'v>(
    enis: &'v Enis,
    port: u16,
    stage: &'static str,
    missing: DropReason,
    judgement: &mut Judgement<'_>,
) -> Result<&'v Eni, Step> {
    match enis.get(port) {
        Ok(Entry::Eni(eni)) if enis.is_armed(eni.eni) => {
            judgement.hit(stage, eni.entry, || {
                let (number, vnet, mac) = (eni.eni, eni.vnet, MacAddr(eni.mac));
                format!("entry {}: ENI {number} of VNET {vnet}, {mac}, is on port {port}", eni.entry)
            });
            Ok(eni)
        }
        Ok(Entry::Eni(eni)) => {
            judgement.note(stage, Some(eni.entry), || format!("ENI {} on port {port} is not armed", eni.eni));
            Err(enis.unarmed)
        }
        Ok(&Entry::Punt { entry, .. }) => {
            judgement.hit(stage, entry, || format!("entry {entry} punts port {port}"));
            Err(Step::Punt(PuntReason::PuntEntry))
        }
        Err(miss) => {
            judgement.note(stage, None, || match miss {
                Miss::Decide => format!("no ENI is on port {port}"),
                Miss::Punt => format!("no entry for port {port}, and not all are here: punted"),
            });
            Err(miss.step(missing))
        }
    }
}

/// Writes the groups of the key's family into the registers from `first` on.
fn set_groups(judgement: &mut Judgement<'_>, first: usize, groups: &StageGroups) {
    let [v4, v6] = groups;
    let groups = if judgement.key.is_v4() { v4 } else { v6 };
    judgement.registers[first..first + groups.len()].copy_from_slice(groups);
}
