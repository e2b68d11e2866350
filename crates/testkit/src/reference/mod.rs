//! The reference policy: what the desired state means, read off it directly, in linear scans.
//!
//! It shares no code with the engine and none with the compiler: of ours it knows the model, and the names of drops. [`Policy`]
//! judges a packet by itself, [`Reference`] one that may belong to a connection. The meaning is DASH's (ACL stages) and the order
//! of questions that of the program `vnet`: the port's ENI, its source addresses, its outbound ACL, its routes, the mappings of the
//! VNET that they lead to, the ENI there, and its inbound ACL.

mod acl;
mod stateful;

pub use stateful::{Connection, Expected, Outcome, Reference};

use model::{Desired, Eni, IpPrefix, MacAddr, RouteAction};
use packet::DropReason;
use std::fmt;
use std::net::IpAddr;

/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;

/// What tells one conversation from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// What the protocol adds.
    pub upper: Upper,
}

/// What a protocol adds to the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Upper {
    /// Nothing.
    None,
    /// TCP's and UDP's ports: source and destination.
    Ports(u16, u16),
    /// An echo request's identifier.
    EchoRequest(u16),
    /// An echo reply's identifier.
    EchoReply(u16),
}

impl Tuple {
    /// That of the answers.
    #[must_use]
    pub fn reversed(self) -> Tuple {
        let upper = match self.upper {
            Upper::None => Upper::None,
            Upper::Ports(src, dst) => Upper::Ports(dst, src),
            Upper::EchoRequest(id) => Upper::EchoReply(id),
            Upper::EchoReply(id) => Upper::EchoRequest(id),
        };
        Tuple { src: self.dst, dst: self.src, protocol: self.protocol, upper }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuple { src, dst, protocol, .. } = self;
        match self.upper {
            Upper::None => write!(f, "protocol {protocol} {src} > {dst}"),
            Upper::Ports(s, d) if *protocol == TCP => write!(f, "tcp {src} port {s} > {dst} port {d}"),
            Upper::Ports(s, d) => write!(f, "udp {src} port {s} > {dst} port {d}"),
            Upper::EchoRequest(id) => write!(f, "echo-request {src} > {dst} id {id}"),
            Upper::EchoReply(id) => write!(f, "echo-reply {src} > {dst} id {id}"),
        }
    }
}

/// A packet as it comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The port's name.
    pub port: String,
    /// Source MAC.
    pub mac: MacAddr,
    /// The conversation; for an error that of the packet quoted, as it was sent.
    pub tuple: Tuple,
    /// What it is there.
    pub what: What,
}

/// What a packet is in its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// One that may open it: UDP, an echo request, TCP's SYN, any packet of other protocols.
    Opener,
    /// One that may not: another TCP segment, an echo reply.
    Follower,
    /// An ICMP error from this address about it.
    Error(IpAddr),
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Opener => write!(f, "{} in at {} from {}", self.tuple, self.port, self.mac),
            What::Follower => write!(f, "{} (follower) in at {} from {}", self.tuple, self.port, self.mac),
            What::Error(from) => {
                write!(f, "ICMP error from {from} about {} in at {} from {}", self.tuple, self.port, self.mac)
            }
        }
    }
}

/// Where a packet leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The port's name.
    pub port: String,
    /// The destination MAC that it gets.
    pub mac: MacAddr,
}

/// The policy's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It may pass.
    Allowed(Exit),
    /// It may not.
    Denied(DropReason),
}

/// The answer, and the rules that were met on the way, by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The answer.
    pub answer: Judged,
    /// Rules met.
    pub rules: Vec<String>,
}

/// What the answer to a neighbour's question is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbor {
    /// This MAC has the address.
    Answer(MacAddr),
    /// Nothing is said.
    Ignored,
    /// The question is dropped.
    Denied(DropReason),
}

/// A desired state that can be asked about packets.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    desired: Desired,
}

impl Policy {
    /// The policy that the desired state states.
    pub fn new(desired: &Desired) -> Policy {
        Policy { desired: desired.clone() }
    }

    /// What it was made of.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The ENI behind a port.
    pub fn eni_at(&self, port: &str) -> Option<&Eni> {
        self.desired.enis.iter().find(|eni| eni.port == port)
    }

    /// Whether the ENI may use this source address.
    pub fn permits(&self, eni: &Eni, source: IpAddr) -> bool {
        !eni.anti_spoof || eni.addresses.iter().any(|a| a.contains(source))
    }

    /// Judges a packet as the first of its conversation, whatever its MAC addresses are.
    pub fn judge(&self, port: &str, tuple: &Tuple) -> Judgement {
        let mut rules = Vec::new();
        let answer = match self.walk(port, tuple, &mut rules) {
            Ok(exit) => Judged::Allowed(exit),
            Err(reason) => Judged::Denied(reason),
        };
        Judgement { answer, rules }
    }

    fn walk(&self, port: &str, tuple: &Tuple, rules: &mut Vec<String>) -> Result<Exit, DropReason> {
        let sender = self.eni_at(port).ok_or(DropReason::NoEni)?;
        if !self.permits(sender, tuple.src) {
            return Err(DropReason::SpoofedIp);
        }
        if !self.acl_allows(&sender.acl_out, tuple, rules) {
            return Err(DropReason::AclOutDenied);
        }
        let vnet = self.route(sender, tuple.dst, rules)?;
        let receiver = self.owner(vnet, tuple.dst, Some(rules)).ok_or(DropReason::NoMapping)?;
        if receiver.name == sender.name {
            return Err(DropReason::SameEni);
        }
        if !self.acl_allows(&receiver.acl_in, tuple, rules) {
            return Err(DropReason::AclInDenied);
        }
        Ok(exit(receiver))
    }

    /// The VNET that the ENI's routes lead to, by the longest prefix.
    fn route(&self, eni: &Eni, dst: IpAddr, rules: &mut Vec<String>) -> Result<&str, DropReason> {
        let mut best: Option<&model::Route> = None;
        for route in &self.desired.routes {
            let longer = best.is_none_or(|b| route.prefix.len() > b.prefix.len());
            if route.eni == eni.name && route.prefix.contains(dst) && longer {
                best = Some(route);
            }
        }
        let route = best.ok_or(DropReason::NoRoute)?;
        rules.push(format!("route/{}/{}", route.eni, route.prefix));
        match (route.action_type, &route.vnet) {
            (RouteAction::Vnet, Some(vnet)) => Ok(vnet),
            _ => Err(DropReason::RouteDrop),
        }
    }

    /// The ENI behind which an address of a VNET lives: by the longest prefix among the addresses of its ENIs and its mappings.
    fn owner(&self, vnet: &str, address: IpAddr, rules: Option<&mut Vec<String>>) -> Option<&Eni> {
        let mut best: Option<(IpPrefix, &str, bool)> = None;
        let mut offer = |prefix: IpPrefix, eni, explicit| {
            if prefix.contains(address) && best.is_none_or(|(b, ..)| prefix.len() > b.len()) {
                best = Some((prefix, eni, explicit));
            }
        };
        for eni in self.desired.enis.iter().filter(|e| e.vnet == vnet) {
            for address in &eni.addresses {
                offer(*address, eni.name.as_str(), false);
            }
        }
        for mapping in self.desired.vnet_mappings.iter().filter(|m| m.vnet == vnet) {
            offer(mapping.ip_address, mapping.eni.as_str(), true);
        }
        let (prefix, eni, explicit) = best?;
        if let (true, Some(rules)) = (explicit, rules) {
            rules.push(format!("mapping/{vnet}/{prefix}"));
        }
        self.desired.eni(eni)
    }

    /// What becomes of an ARP request or neighbour solicitation for `target` in a frame of `mac`, in which `claimed` (MAC and address)
    /// is told of the sender; no address when it probes for duplicates.
    pub fn neighbor(
        &self,
        port: &str,
        mac: MacAddr,
        claimed: (MacAddr, Option<IpAddr>),
        target: IpAddr,
    ) -> Neighbor {
        let unknown = match target {
            IpAddr::V4(_) => DropReason::ArpUnknownAddress,
            IpAddr::V6(_) => DropReason::NdUnknownAddress,
        };
        let Some(eni) = self.eni_at(port) else {
            return Neighbor::Denied(DropReason::NoEni);
        };
        if eni.anti_spoof && mac != eni.mac_address {
            return Neighbor::Denied(DropReason::SpoofedMac);
        }
        let honest = claimed.0 == eni.mac_address && claimed.1.is_none_or(|ip| self.permits(eni, ip));
        if eni.anti_spoof && !honest {
            return Neighbor::Denied(DropReason::SpoofedArp);
        }
        // A probe for duplicates, or an announcement.
        if claimed.1.is_none_or(|sender| sender == target) {
            return Neighbor::Ignored;
        }
        match self.owner(&eni.vnet, target, None) {
            None => Neighbor::Denied(unknown),
            Some(owner) if owner.name == eni.name => Neighbor::Ignored,
            Some(owner) => Neighbor::Answer(owner.mac_address),
        }
    }
}

/// Packets to this ENI leave there.
fn exit(eni: &Eni) -> Exit {
    Exit { port: eni.port.clone(), mac: eni.mac_address }
}

#[cfg(test)]
mod tests;
