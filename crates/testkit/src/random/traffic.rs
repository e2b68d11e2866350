//! Random traffic under a policy: first packets at the corner points of its rules, answers, ICMP errors, spoofed sources, packets of
//! no connection. TCP is well-behaved: each end sends what a host in its place would send.

use super::Random;
use crate::builder::{self, Build};
use crate::reference::{Exit, Packet, TCP, Tuple, UDP, Upper, What};
use model::{AclRule, Desired, IpPrefix, MacAddr, PortRange};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::tcp::flags::{ACK, PSH, SYN};

/// A packet, and the same in bytes.
#[derive(Clone, Debug)]
pub struct Sent {
    /// For the reference.
    pub packet: Packet,
    /// For the device.
    pub frame: Vec<u8>,
    conversation: Option<u32>,
    backward: bool,
    bytes: u32,
}

/// One end's view of TCP.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    next: u32,
    acked: u32,
}

/// How far a TCP connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Syn,
    SynAck,
    Open,
}

#[derive(Clone, Debug)]
struct Conversation {
    port: String,
    mac: MacAddr,
    tuple: Tuple,
    peer: Option<Exit>,
    ends: [End; 2],
    stage: Stage,
    /// The last packet that arrived, and whether it was the peer's.
    last: Option<(Vec<u8>, bool)>,
}

/// Conversations that are remembered.
const REMEMBERED: usize = 24;

/// A source of packets.
#[derive(Clone, Debug)]
pub struct Traffic {
    random: Random,
    desired: Desired,
    macs: BTreeMap<String, MacAddr>,
    conversations: BTreeMap<u32, Conversation>,
    made: u32,
}

impl Traffic {
    /// Traffic under this desired state.
    pub fn new(random: Random, desired: &Desired) -> Traffic {
        let mut traffic = Traffic {
            random,
            desired: Desired::default(),
            macs: BTreeMap::new(),
            conversations: BTreeMap::new(),
            made: 0,
        };
        traffic.policy(desired);
        traffic
    }

    /// The policy at whose corners packets are aimed from now on.
    pub fn policy(&mut self, desired: &Desired) {
        self.desired = desired.clone();
        self.macs.extend(desired.enis.iter().map(|e| (e.port.clone(), e.mac_address)));
    }

    /// The next packet.
    pub fn next_packet(&mut self) -> Sent {
        match self.random.below(100) {
            0..=39 => self.first(),
            40..=84 => self.further().unwrap_or_else(|| self.first()),
            85..=92 => self.error().unwrap_or_else(|| self.first()),
            93..=95 => self.spoofed(),
            _ => self.stray(),
        }
    }

    /// One more packet like this one, with another content; none for TCP, where the next one depends on what became of this one.
    pub fn again(&mut self, sent: &Sent) -> Option<Sent> {
        let id = sent.conversation.filter(|_| sent.packet.tuple.protocol != TCP)?;
        Some(self.send(id, sent.backward))
    }

    /// What became of it.
    pub fn outcome(&mut self, sent: &Sent, delivered: Option<&Exit>) {
        let Some(exit) = delivered else { return };
        let Some(conversation) = sent.conversation.and_then(|id| self.conversations.get_mut(&id)) else {
            return;
        };
        conversation.last = Some((sent.frame.clone(), sent.backward));
        if !sent.backward {
            conversation.peer = Some(exit.clone());
        }
        if conversation.tuple.protocol != TCP {
            return;
        }
        let [a, b] = &mut conversation.ends;
        let (from, to) = if sent.backward { (b, a) } else { (a, b) };
        match (conversation.stage, sent.backward) {
            (Stage::Syn, false) => to.acked = from.next.wrapping_add(1),
            (Stage::Syn, true) => {
                to.acked = from.next.wrapping_add(1);
                from.next = from.next.wrapping_add(1);
                to.next = to.next.wrapping_add(1);
                conversation.stage = Stage::SynAck;
            }
            (Stage::SynAck, true) => {}
            (Stage::SynAck, false) => conversation.stage = Stage::Open,
            (Stage::Open, _) => {
                from.next = from.next.wrapping_add(sent.bytes);
                to.acked = from.next;
            }
        }
    }

    fn mac(&self, port: &str) -> MacAddr {
        self.macs.get(port).copied().unwrap_or(MacAddr(builder::SRC_MAC))
    }

    /// The first packet of a conversation.
    fn first(&mut self) -> Sent {
        let (port, tuple) = self.tuple();
        let isn = self.random.next_u64() as u32;
        let peer_isn = self.random.next_u64() as u32;
        let conversation = Conversation {
            mac: self.mac(&port),
            port,
            tuple,
            peer: None,
            ends: [End { next: isn, acked: 0 }, End { next: peer_isn, acked: 0 }],
            stage: Stage::Syn,
            last: None,
        };
        let id = self.made;
        self.made += 1;
        self.conversations.insert(id, conversation);
        if self.conversations.len() > REMEMBERED {
            self.conversations.pop_first();
        }
        self.send(id, false)
    }

    /// One more packet of a conversation, from either end.
    fn further(&mut self) -> Option<Sent> {
        let live = self.live();
        let id = *live.get(self.random.below(live.len().max(1) as u64) as usize)?;
        let backward = match (self.conversations[&id].tuple.protocol, self.conversations[&id].stage) {
            (TCP, Stage::Syn) => self.random.chance(80),
            (TCP, Stage::SynAck) => self.random.chance(15),
            _ => self.random.chance(55),
        };
        Some(self.send(id, backward))
    }

    /// Conversations whose first packet arrived.
    fn live(&self) -> Vec<u32> {
        self.conversations.iter().filter(|(_, c)| c.peer.is_some()).map(|(id, _)| *id).collect()
    }

    /// The packet that one end of a conversation would send now.
    fn send(&mut self, id: u32, backward: bool) -> Sent {
        let mark = self.random.next_u64() as u32;
        let size = self.random.below(200) as usize;
        let c = &self.conversations[&id];
        let (port, mac, tuple) = match &c.peer {
            Some(exit) if backward => (exit.port.clone(), exit.mac, c.tuple.reversed()),
            _ => (c.port.clone(), c.mac, c.tuple),
        };
        let dst_mac = if backward { c.mac } else { c.peer.as_ref().map_or(c.mac, |p| p.mac) };
        let mut payload = mark.to_be_bytes().to_vec();
        payload.resize(4 + size, 0xa5);
        let mut bytes = 0;
        let (build, what) = match (tuple.protocol, tuple.upper) {
            (TCP, Upper::Ports(s, d)) => {
                let end = c.ends[usize::from(backward)];
                let (flags, data) = match (c.stage, backward) {
                    (Stage::Syn, false) => (SYN, &[][..]),
                    (Stage::Syn, true) => (SYN | ACK, &[][..]),
                    (Stage::SynAck, true) => (SYN | ACK, &[][..]),
                    (Stage::SynAck, false) => (ACK, &[][..]),
                    (Stage::Open, _) => (PSH | ACK, &payload[..]),
                };
                let ack = if flags & ACK != 0 { end.acked } else { 0 };
                // A SYN-ACK sent again has the number that it had.
                let seq = if (c.stage, backward) == (Stage::SynAck, true) {
                    end.next.wrapping_sub(1)
                } else {
                    end.next
                };
                bytes = data.len() as u32;
                let build =
                    Build::tcp(tuple.src, tuple.dst).ports(s, d).flags(flags).numbers(seq, ack).bytes(data);
                (build, if flags == SYN { What::Opener } else { What::Follower })
            }
            _ => stateless(&tuple, &payload),
        };
        let frame = build.macs(mac.0, dst_mac.0).frame();
        let packet = Packet { port, mac, tuple, what };
        Sent { packet, frame, conversation: Some(id), backward, bytes }
    }

    /// An ICMP error about the last packet of a conversation, from the one who got it or a router there.
    fn error(&mut self) -> Option<Sent> {
        let live = self.live();
        let id = *live.get(self.random.below(live.len().max(1) as u64) as usize)?;
        let c = self.conversations[&id].clone();
        let (quoted, backward) = c.last?;
        let peer = c.peer?;
        let (port, mac, tuple, to) = if !backward {
            (peer.port, peer.mac, c.tuple, c.mac)
        } else {
            (c.port, c.mac, c.tuple.reversed(), peer.mac)
        };
        let router = *self.random.pick(&["10.1.1.9", "10.0.0.1", "fd00::1", "fd01:0:1::9"]);
        let router: IpAddr = router.parse().expect("an address");
        let from = if self.random.chance(70) || router.is_ipv4() != tuple.dst.is_ipv4() {
            tuple.dst
        } else {
            router
        };
        let frame = Build::unreachable(from, &quoted).macs(mac.0, to.0).frame();
        let packet = Packet { port, mac, tuple, what: What::Error(from) };
        Some(Sent { packet, frame, conversation: None, backward: false, bytes: 0 })
    }

    /// A first packet with a MAC or IP source that is not the ENI's.
    fn spoofed(&mut self) -> Sent {
        let mut sent = self.first();
        if let Some(id) = sent.conversation.take() {
            self.conversations.remove(&id);
        }
        let mac = MacAddr([2, 0, 0, 9, 9, 9]);
        sent.frame[6..12].copy_from_slice(&mac.0);
        sent.packet.mac = mac;
        sent
    }

    /// A packet that only a connection could explain, and there is none.
    fn stray(&mut self) -> Sent {
        let (port, mut tuple) = self.tuple();
        let mac = self.mac(&port);
        let id = self.random.next_u64() as u16;
        let (build, what) = match self.random.below(3) {
            0 => {
                tuple.protocol = if tuple.src.is_ipv4() { 1 } else { 58 };
                tuple.upper = Upper::EchoReply(id);
                stateless(&tuple, &[])
            }
            1 => {
                // About a packet that was never sent.
                let quoted = stateless(&tuple.reversed(), &[0; 20]).0.frame();
                let build = Build::unreachable(tuple.src, &quoted);
                tuple = tuple.reversed();
                (build, What::Error(tuple.dst))
            }
            _ => {
                tuple.protocol = TCP;
                tuple.upper = Upper::Ports(id, 80);
                let flags = *self.random.pick(&[ACK, SYN | ACK, ACK | PSH]);
                let build = Build::tcp(tuple.src, tuple.dst).ports(id, 80).flags(flags).numbers(7, 9);
                (build, What::Follower)
            }
        };
        let frame = build.macs(mac.0, mac.0).frame();
        let packet = Packet { port, mac, tuple, what };
        Sent { packet, frame, conversation: None, backward: false, bytes: 0 }
    }

    /// A port, and a conversation that its ENI may want to have.
    fn tuple(&mut self) -> (String, Tuple) {
        let enis = &self.desired.enis;
        let eni = self.random.pick(enis).clone();
        let port = if self.random.chance(2) {
            self.random.pick(&self.desired.ports).name.clone()
        } else {
            eni.port.clone()
        };
        let v4 = self.random.chance(60);
        let own: Vec<IpPrefix> = eni.addresses.iter().filter(|a| a.addr().is_ipv4() == v4).copied().collect();
        let bent = if eni.anti_spoof { 6 } else { 25 };
        let rule = self.rule(v4);
        let mut src = corner(&mut self.random, own.first());
        if self.random.chance(30) {
            src = corner(&mut self.random, own.last());
        }
        if self.random.chance(bent) {
            src = corner(&mut self.random, rule.as_ref().and_then(|r| r.src_addr.first()));
        }
        let receiver = self.random.pick(&self.desired.enis).clone();
        let theirs: Vec<IpPrefix> =
            receiver.addresses.iter().filter(|a| a.addr().is_ipv4() == v4).copied().collect();
        let dst = match self.random.below(10) {
            0..=2 => corner(&mut self.random, rule.as_ref().and_then(|r| r.dst_addr.last())),
            3 => {
                let texts = if v4 { ["10.0.0.7", "10.2.0.9"] } else { ["fd00::7", "fd02::9"] };
                self.random.pick(&texts).parse().ok()
            }
            _ => corner(&mut self.random, theirs.last()),
        };
        let fallback = if v4 { "10.0.0.1" } else { "fd00::1" }.parse().expect("an address");
        let valid = |a: Option<IpAddr>| a.filter(|a| a.is_ipv4() == v4 && is_unicast(*a)).unwrap_or(fallback);
        let (protocol, upper) = self.upper(v4, rule.as_ref());
        (port, Tuple { src: valid(src), dst: valid(dst), protocol, upper })
    }

    fn rule(&mut self, v4: bool) -> Option<AclRule> {
        let version = if v4 { model::IpVersion::Ipv4 } else { model::IpVersion::Ipv6 };
        let rules: Vec<&AclRule> = self
            .desired
            .acl_groups
            .iter()
            .filter(|g| g.ip_version == version)
            .flat_map(|g| &g.rules)
            .collect();
        let at = self.random.below(rules.len().max(1) as u64) as usize;
        rules.get(at).map(|r| (*r).clone())
    }

    fn upper(&mut self, v4: bool, rule: Option<&AclRule>) -> (u8, Upper) {
        let icmp = if v4 { 1 } else { 58 };
        let any = [TCP, TCP, UDP, UDP, icmp, icmp, 47];
        let listed = rule.map_or(&[][..], |r| &r.protocol);
        let protocol = if !listed.is_empty() && self.random.chance(60) {
            self.random.pick(listed).0
        } else {
            *self.random.pick(&any)
        };
        // A source port of its own for each conversation, unless a rule asks for one.
        let fresh = 20_000 + (self.made % 40_000) as u16;
        let upper = match protocol {
            TCP | UDP => {
                let asked = rule.and_then(|r| r.src_port.first());
                let src = match asked {
                    Some(range) if protocol == UDP && self.random.chance(60) => {
                        port_corner(&mut self.random, range)
                    }
                    _ => fresh,
                };
                let common: u16 = *self.random.pick(&[53, 80, 443, 79, 81, 1023, 1024, 2000, 2001]);
                let dst = match rule.and_then(|r| r.dst_port.last()) {
                    Some(range) if self.random.chance(70) => port_corner(&mut self.random, range),
                    _ => common,
                };
                Upper::Ports(src, dst)
            }
            1 | 58 => Upper::EchoRequest(fresh),
            _ => Upper::None,
        };
        (protocol, upper)
    }
}

/// UDP, echoes and other protocols, and TCP's SYN: each packet stands for itself.
fn stateless(tuple: &Tuple, payload: &[u8]) -> (Build, What) {
    let Tuple { src, dst, protocol, upper } = *tuple;
    match upper {
        Upper::Ports(s, d) if protocol == TCP => (Build::tcp(src, dst).ports(s, d), What::Opener),
        Upper::Ports(s, d) => (Build::udp(src, dst).ports(s, d).bytes(payload), What::Opener),
        Upper::EchoRequest(id) => (Build::echo_request(src, dst, id, 1).bytes(payload), What::Opener),
        Upper::EchoReply(id) => (Build::echo_reply(src, dst, id, 1).bytes(payload), What::Follower),
        Upper::None => (Build::other(src, dst, protocol).bytes(payload), What::Opener),
    }
}

/// The first or last address of a prefix, or one beside it.
fn corner(random: &mut Random, prefix: Option<&IpPrefix>) -> Option<IpAddr> {
    let prefix = prefix?;
    let step = random.below(8);
    match prefix.addr() {
        IpAddr::V4(first) => {
            let host = u32::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let (first, last) = (first.to_bits(), first.to_bits() | host);
            let bits = match step {
                0..=3 => first,
                4..=5 => last,
                6 => first.wrapping_sub(1),
                _ => last.wrapping_add(1),
            };
            Some(Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(first) => {
            let host = u128::MAX.checked_shr(prefix.len().into()).unwrap_or(0);
            let (first, last) = (first.to_bits(), first.to_bits() | host);
            let bits = match step {
                0..=3 => first,
                4..=5 => last,
                6 => first.wrapping_sub(1),
                _ => last.wrapping_add(1),
            };
            Some(Ipv6Addr::from_bits(bits).into())
        }
    }
}

fn port_corner(random: &mut Random, range: &PortRange) -> u16 {
    match random.below(6) {
        0 | 1 => range.first(),
        2 | 3 => range.last(),
        4 => range.first().saturating_sub(1),
        _ => range.last().saturating_add(1),
    }
}

/// Whether an address can be one end of a conversation; what cannot is refused before any policy is asked.
fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => (1..=223).contains(&a.octets()[0]) && !a.is_loopback(),
        IpAddr::V6(a) => {
            !(a.is_unspecified() || a.is_loopback() || a.is_multicast() || a.to_ipv4_mapped().is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::desired;
    use crate::reference::{Outcome, Policy, Reference};
    use packet::Meta;
    use pipeline::parse::parse;

    /// The traffic reaches all that the policy can say, and each frame is what its description says.
    #[test]
    fn traffic_is_varied_and_well_formed() {
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let desired = desired(&mut random);
            let mut traffic = Traffic::new(random.fork(), &desired);
            let mut reference = Reference::new(Policy::new(&desired));
            for n in 0..100 {
                let sent = traffic.next_packet();
                let text = format!("seed {seed}, packet {n}: {}", sent.packet);
                let headers = parse(&sent.frame, &Meta::default()).expect(&text);
                assert_eq!(headers.key.src_ip(), sent.packet.tuple.src, "{text}");
                assert_eq!(headers.key.dst_ip(), sent.packet.tuple.dst, "{text}");
                assert_eq!(headers.key.proto, sent.packet.tuple.protocol, "{text}");
                let expected = reference.expect(&sent.packet, n).remove(0).outcome;
                reference.observe(&sent.packet, &expected, n).expect(&text);
                let (word, exit) = match &expected {
                    Outcome::Delivered(exit) => ("delivered".to_string(), Some(exit)),
                    Outcome::Dropped(reason) => (reason.to_string(), None),
                };
                *answers.entry(word).or_default() += 1;
                traffic.outcome(&sent, exit);
            }
        }
        println!("{answers:?}");
        for word in [
            "delivered",
            "spoofed_mac",
            "spoofed_ip",
            "acl_out_denied",
            "no_route",
            "route_drop",
            "no_mapping",
            "same_eni",
            "acl_in_denied",
            "tcp_no_connection",
            "icmp_no_connection",
            "icmp_error_no_connection",
        ] {
            assert!(answers.get(word).is_some_and(|&n| n >= 10), "{word}: {answers:?}");
        }
        assert!(answers["delivered"] > 2500, "{answers:?}");
    }
}
