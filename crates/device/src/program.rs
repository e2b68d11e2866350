//! The program `vnet`: its stages, in the order in which a first packet meets them.

use contract::Target;
use functions::eni::Armed;
use functions::scope::{Miss, Scopes};
use functions::{acl, eni, neighbor, route};
use packet::{ConsumeReason, DropReason, Frame, PuntReason};
use pipeline::judge::{Judgement, Stage, Step, walk};
use pipeline::key::FlowKey;
use pipeline::parse::{Class, Headers};
use pipeline::trace::Trace;
use wire::ip::V4_MAPPED;

/// The tables of one executor at one version.
#[derive(Clone)]
pub struct View {
    /// ENIs by port.
    pub enis: eni::Enis,
    /// Source addresses by ENI.
    pub sources: eni::Sources,
    /// ACL groups.
    pub acl: acl::Groups,
    /// Routes by ENI.
    pub routes: route::Routes,
    /// Mappings by VNET.
    pub mappings: route::Mappings,
}

impl View {
    /// Empty tables. Those of the device know that they may lack entries (`absent` and every miss punts), those of the host
    /// path are the whole truth.
    pub fn empty(target: Target, unarmed: Step) -> View {
        let (absent, armed) = match target {
            Target::Device => (Miss::Punt, Armed::Only(Default::default())),
            Target::Host => (Miss::Decide, Armed::All),
        };
        let mut enis = eni::Enis::build([], absent);
        enis.armed = armed;
        enis.unarmed = unarmed;
        View {
            enis,
            sources: Scopes::new(absent),
            acl: Scopes::new(absent),
            routes: Scopes::new(absent),
            mappings: Scopes::new(absent),
        }
    }

    /// Whether packets of the ENI with this number may be judged here.
    #[inline]
    pub fn admits(&self, eni: u16) -> Step {
        if self.enis.is_armed(eni) { Step::Continue } else { self.enis.unarmed }
    }
}

macro_rules! as_ref {
    ($($field:ident: $table:ty),*) => {
        $(impl AsRef<$table> for View {
            fn as_ref(&self) -> &$table {
                &self.$field
            }
        })*
    };
}

as_ref!(enis: eni::Enis, sources: eni::Sources, acl: acl::Groups, routes: route::Routes, mappings: route::Mappings);

/// Registers of a judgement.
const VNET: usize = 0;
const ANTI_SPOOF: usize = 1;
const GROUPS_OUT: usize = 2;
const DESTINATION_VNET: usize = 7;
const GROUPS_IN: usize = 8;

static STAGES: [&dyn Stage<View>; 7] = [
    &eni::Ingress { vnet: VNET, anti_spoof: ANTI_SPOOF, groups: GROUPS_OUT },
    &eni::Source { anti_spoof: ANTI_SPOOF },
    &acl::Stage { name: "acl_out", groups: GROUPS_OUT, deny: DropReason::AclOutDenied },
    &route::ToVnet { vnet: DESTINATION_VNET },
    &route::ToPort { vnet: DESTINATION_VNET },
    &eni::Egress { groups: GROUPS_IN },
    &acl::Stage { name: "acl_in", groups: GROUPS_IN, deny: DropReason::AclInDenied },
];

/// Judges the key of a connection that was opened at `port` again. One whose ENI has left the port is over; which ENI lives there
/// is known whatever the device's tables hold.
pub fn judge_again<'t>(
    view: &View,
    full: &View,
    key: &FlowKey,
    port: u16,
    trace: Option<&'t mut Trace>,
) -> (Step, Judgement<'t>) {
    if full.enis.eni(port).is_none_or(|eni| eni.eni != key.eni) {
        let mut judgement = Judgement::new(*key, port, trace);
        judgement.note("eni_in", None, || format!("ENI {} is no longer on port {port}", key.eni));
        return (Step::Drop(DropReason::NoEni), judgement);
    }
    judge(view, key, port, trace)
}

/// Judges a key whose packets come in at `port`.
pub fn judge<'t>(
    view: &View,
    key: &FlowKey,
    port: u16,
    trace: Option<&'t mut Trace>,
) -> (Step, Judgement<'t>) {
    let mut judgement = Judgement::new(*key, port, trace);
    let admitted = view.admits(key.eni);
    if admitted != Step::Continue {
        judgement.note("armed", None, || format!("ENI {} is not armed", key.eni));
        return (admitted, judgement);
    }
    let step = walk(&STAGES, view, &mut judgement);
    (step, judgement)
}

/// What becomes of a packet that is meant for the device itself, or is about its neighbours.
pub enum Response {
    /// The frame is now the answer.
    Answered,
    /// Nothing is to be said.
    Ignored(ConsumeReason),
    /// No.
    Drop(DropReason),
    /// These tables cannot tell.
    Punt(PuntReason),
}

/// Answers ARP and neighbour solicitations of an ENI for the addresses that its VNET knows. The frame is turned into
/// the answer in place.
pub fn respond(view: &View, eni: &eni::Eni, frame: &mut Frame, headers: &Headers) -> Response {
    match asked(view, eni, frame.data(), headers) {
        Ok(mac) if neighbor::answer(frame, headers, mac) => Response::Answered,
        Ok(_) => Response::Ignored(ignored(headers)),
        Err(response) => response,
    }
}

/// The MAC address that answers a question, or why there is none to be given; the checks come first.
pub fn asked(view: &View, eni: &eni::Eni, frame: &[u8], headers: &Headers) -> Result<[u8; 6], Response> {
    let (punt, unknown) = if is_arp(headers) {
        (PuntReason::Arp, DropReason::ArpUnknownAddress)
    } else {
        (PuntReason::Nd, DropReason::NdUnknownAddress)
    };
    match view.admits(eni.eni) {
        Step::Continue => {}
        Step::Drop(reason) => return Err(Response::Drop(reason)),
        Step::Punt(reason) => return Err(Response::Punt(reason)),
    }
    let (sender, target) = (headers.key.src(), headers.key.dst());
    let unspecified = sender == 0 || sender == V4_MAPPED;
    if eni.anti_spoof {
        let claimed = headers.link_layer_offset().and_then(|at| frame.get(at..at + 6));
        if claimed.is_some_and(|mac| mac != eni.mac) {
            return Err(Response::Drop(DropReason::SpoofedArp));
        }
        if !unspecified && !link_local(sender) {
            match view.sources.permits(eni.eni, sender) {
                Step::Continue => {}
                Step::Drop(_) => return Err(Response::Drop(DropReason::SpoofedArp)),
                Step::Punt(_) => return Err(Response::Punt(punt)),
            }
        }
    }
    let asks = matches!(headers.class, Class::ArpRequest | Class::NeighborSolicitation);
    if !asks || unspecified || sender == target {
        return Err(Response::Ignored(ignored(headers)));
    }
    match view.mappings.lookup(eni.vnet, target) {
        Ok((port, _)) if port == eni.port => Err(Response::Ignored(ignored(headers))),
        Ok((_, mac)) => Ok(mac),
        Err(Step::Punt(_)) => Err(Response::Punt(punt)),
        Err(_) => Err(Response::Drop(unknown)),
    }
}

/// Whether an address is of fe80::/10 (RFC 4291, 2.5.6). Every interface has one, and hosts probe their neighbours from it (RFC 4861,
/// 7.2.2); what it asks never leaves the device.
fn link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

fn is_arp(headers: &Headers) -> bool {
    matches!(headers.class, Class::ArpRequest | Class::ArpReply)
}

fn ignored(headers: &Headers) -> ConsumeReason {
    if is_arp(headers) { ConsumeReason::ArpIgnored } else { ConsumeReason::NdIgnored }
}

/// The ENI of a port in these tables, or what a port without one gets; `eni` is the number of the ENI that lives there.
pub fn eni_of(view: &View, port: u16, eni: u16) -> Result<&eni::Eni, Step> {
    match view.admits(eni) {
        Step::Continue => view.enis.eni(port).ok_or(Step::Punt(PuntReason::TableMiss)),
        step => Err(step),
    }
}

/// Whether an ENI may send an ICMP error from this address: errors belong to a connection, so they walk no stages.
pub fn error_source(view: &View, eni: &eni::Eni, source: u128) -> Step {
    match view.admits(eni.eni) {
        Step::Continue if eni.anti_spoof => view.sources.permits(eni.eni, source),
        step => step,
    }
}
