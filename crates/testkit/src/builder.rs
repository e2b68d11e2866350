//! Frames in words: `Build::udp("10.0.0.1", "10.0.0.2").ports(1000, 53).payload(8).frame()`. IPv4 or IPv6 follows from the
//! addresses, lengths and checksums are right.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use wire::ethernet::{MacAddr, ethertype};
use wire::ip::protocol;
use wire::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp};

/// What frames come from unless [`Build::macs`] says otherwise.
pub const SRC_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// What frames go to unless [`Build::macs`] says otherwise.
pub const DST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// What stands for an address in a test: an `IpAddr`, or text.
pub trait Address {
    /// The address.
    fn address(self) -> IpAddr;
}

impl Address for IpAddr {
    fn address(self) -> IpAddr {
        self
    }
}

impl Address for &str {
    fn address(self) -> IpAddr {
        self.parse().unwrap_or_else(|_| panic!("{self:?} is no IP address"))
    }
}

#[derive(Clone, Debug)]
enum Upper {
    Udp { sport: u16, dport: u16 },
    Tcp { sport: u16, dport: u16, seq: u32, ack: u32, flags: u8, window: u16, options: Vec<u8> },
    Icmp { kind: u8, code: u8, rest: [u8; 4] },
    Other(u8),
}

/// A frame in the making.
#[derive(Clone, Debug)]
pub struct Build {
    src: IpAddr,
    dst: IpAddr,
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    ttl: u8,
    tos: u8,
    upper: Upper,
    payload: Vec<u8>,
}

impl Build {
    fn new(src: impl Address, dst: impl Address, upper: Upper) -> Build {
        let (src, dst) = (src.address(), dst.address());
        assert_eq!(src.is_ipv4(), dst.is_ipv4(), "{src} and {dst} are of two IP versions");
        Build { src, dst, src_mac: SRC_MAC, dst_mac: DST_MAC, ttl: 64, tos: 0, upper, payload: Vec::new() }
    }

    /// A UDP datagram, ports 1000 to 53.
    pub fn udp(src: impl Address, dst: impl Address) -> Build {
        Build::new(src, dst, Upper::Udp { sport: 1000, dport: 53 })
    }

    /// A TCP segment, ports 1000 to 80: a SYN of sequence number 0 with a window of 65,535.
    pub fn tcp(src: impl Address, dst: impl Address) -> Build {
        let upper = Upper::Tcp {
            sport: 1000,
            dport: 80,
            seq: 0,
            ack: 0,
            flags: tcp::flags::SYN,
            window: 65_535,
            options: Vec::new(),
        };
        Build::new(src, dst, upper)
    }

    /// An ICMP or ICMPv6 echo request.
    pub fn echo_request(src: impl Address, dst: impl Address, identifier: u16, sequence: u16) -> Build {
        Build::echo(src.address(), dst.address(), true, identifier, sequence)
    }

    /// An ICMP or ICMPv6 echo reply.
    pub fn echo_reply(src: impl Address, dst: impl Address, identifier: u16, sequence: u16) -> Build {
        Build::echo(src.address(), dst.address(), false, identifier, sequence)
    }

    fn echo(src: IpAddr, dst: IpAddr, request: bool, identifier: u16, sequence: u16) -> Build {
        let kind = match (src.is_ipv4(), request) {
            (true, true) => icmpv4::kind::ECHO_REQUEST,
            (true, false) => icmpv4::kind::ECHO_REPLY,
            (false, true) => icmpv6::kind::ECHO_REQUEST,
            (false, false) => icmpv6::kind::ECHO_REPLY,
        };
        let rest = icmpv4::Header::echo(kind, identifier, sequence).rest;
        Build::new(src, dst, Upper::Icmp { kind, code: 0, rest })
    }

    /// An ICMP or ICMPv6 message of any type and code; `rest` is the second half of its header.
    pub fn icmp(src: impl Address, dst: impl Address, kind: u8, code: u8, rest: [u8; 4]) -> Build {
        Build::new(src, dst, Upper::Icmp { kind, code, rest })
    }

    /// Destination unreachable (port, RFC 792 and RFC 4443 3.1) from `src`, to whoever sent `frame`, quoting it: 8 bytes behind an
    /// IPv4 header, or up to 1,232 bytes of an IPv6 packet.
    pub fn unreachable(src: impl Address, frame: &[u8]) -> Build {
        let packet = &frame[ethernet::HEADER_LEN..];
        let src = src.address();
        let (dst, kind, code, quoted): (IpAddr, _, _, _) = if src.is_ipv4() {
            let view = ipv4::View::new_quoted(packet).expect("an IPv4 packet to quote");
            let quoted = view.header_len() + 8.min(view.payload().len());
            (view.src().into(), icmpv4::kind::DESTINATION_UNREACHABLE, 3, quoted)
        } else {
            let view = ipv6::View::new_quoted(packet).expect("an IPv6 packet to quote");
            (view.src().into(), icmpv6::kind::DESTINATION_UNREACHABLE, 4, view.packet_len().min(1232))
        };
        Build::icmp(src, dst, kind, code, [0; 4]).bytes(&packet[..quoted])
    }

    /// A packet of another protocol, whose payload is not looked at.
    pub fn other(src: impl Address, dst: impl Address, protocol: u8) -> Build {
        Build::new(src, dst, Upper::Other(protocol))
    }

    /// Source and destination MAC addresses.
    #[must_use]
    pub fn macs(self, src_mac: [u8; 6], dst_mac: [u8; 6]) -> Build {
        Build { src_mac, dst_mac, ..self }
    }

    /// Ports of TCP or UDP.
    ///
    /// # Panics
    /// For other protocols, which have none.
    #[must_use]
    pub fn ports(mut self, src: u16, dst: u16) -> Build {
        match &mut self.upper {
            Upper::Udp { sport, dport } | Upper::Tcp { sport, dport, .. } => (*sport, *dport) = (src, dst),
            other => panic!("{other:?} has no ports"),
        }
        self
    }

    fn segment(mut self, change: impl FnOnce(&mut u32, &mut u32, &mut u8, &mut u16, &mut Vec<u8>)) -> Build {
        let Upper::Tcp { seq, ack, flags, window, options, .. } = &mut self.upper else {
            panic!("{:?} is not TCP", self.upper)
        };
        change(seq, ack, flags, window, options);
        self
    }

    /// TCP control bits, see [`wire::tcp::flags`].
    #[must_use]
    pub fn flags(self, to: u8) -> Build {
        self.segment(|_, _, flags, _, _| *flags = to)
    }

    /// TCP sequence and acknowledgment numbers.
    #[must_use]
    pub fn numbers(self, to_seq: u32, to_ack: u32) -> Build {
        self.segment(|seq, ack, _, _, _| (*seq, *ack) = (to_seq, to_ack))
    }

    /// TCP window, unscaled.
    #[must_use]
    pub fn window(self, to: u16) -> Build {
        self.segment(|_, _, _, window, _| *window = to)
    }

    /// TCP options, padded to a multiple of 4 bytes.
    #[must_use]
    pub fn options(self, to: &[u8]) -> Build {
        self.segment(|_, _, _, _, options| *options = to.to_vec())
    }

    /// TTL or hop limit; 64 unless said.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Build {
        Build { ttl, ..self }
    }

    /// Type of service or traffic class.
    #[must_use]
    pub fn tos(self, tos: u8) -> Build {
        Build { tos, ..self }
    }

    /// That many bytes of payload, counting up.
    #[must_use]
    pub fn payload(self, len: usize) -> Build {
        Build { payload: (0..len).map(|n| n as u8).collect(), ..self }
    }

    /// This payload.
    #[must_use]
    pub fn bytes(self, payload: &[u8]) -> Build {
        Build { payload: payload.to_vec(), ..self }
    }

    /// The frame, without FCS and padding.
    pub fn frame(&self) -> Vec<u8> {
        let upper = self.upper_layer();
        let mut frame = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = ipv4::Header::new(src, dst, self.protocol(), upper.len());
                let header = ipv4::Header { ttl: self.ttl, tos: self.tos, ..header };
                self.network(ethertype::IPV4, |buffer| header.emit(buffer))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = ipv6::Header::new(src, dst, self.protocol(), upper.len());
                let header = ipv6::Header { hop_limit: self.ttl, traffic_class: self.tos, ..header };
                self.network(ethertype::IPV6, |buffer| header.emit(buffer))
            }
            _ => unreachable!("checked by new"),
        };
        frame.extend(upper);
        frame
    }

    fn protocol(&self) -> u8 {
        match self.upper {
            Upper::Udp { .. } => protocol::UDP,
            Upper::Tcp { .. } => protocol::TCP,
            Upper::Icmp { .. } if self.src.is_ipv4() => protocol::ICMP,
            Upper::Icmp { .. } => protocol::ICMPV6,
            Upper::Other(protocol) => protocol,
        }
    }

    fn network(
        &self,
        ethertype: u16,
        emit: impl FnOnce(&mut [u8]) -> Result<usize, wire::WireError>,
    ) -> Vec<u8> {
        let mut frame = ether(self.dst_mac, self.src_mac, ethertype);
        let at = frame.len();
        frame.resize(at + ipv6::HEADER_LEN, 0);
        let length = emit(&mut frame[at..]).expect("room for the header");
        frame.truncate(at + length);
        frame
    }

    fn upper_layer(&self) -> Vec<u8> {
        let mut buffer = vec![0; tcp::MAX_HEADER_LEN + self.payload.len()];
        let (src, dst, payload) = (self.src, self.dst, &self.payload[..]);
        let written = match &self.upper {
            Upper::Udp { sport, dport } => {
                udp::Header { src_port: *sport, dst_port: *dport }.emit(&mut buffer, src, dst, payload)
            }
            Upper::Tcp { sport, dport, seq, ack, flags, window, options } => {
                let header = tcp::Header {
                    src_port: *sport,
                    dst_port: *dport,
                    seq: *seq,
                    ack: *ack,
                    flags: *flags,
                    window: *window,
                    urgent: 0,
                    options,
                };
                header.emit(&mut buffer, src, dst, payload)
            }
            Upper::Icmp { kind, code, rest } => match (src, dst) {
                (IpAddr::V6(src), IpAddr::V6(dst)) => {
                    let header = icmpv6::Header { kind: *kind, code: *code, rest: *rest };
                    header.emit(&mut buffer, src, dst, payload)
                }
                _ => icmpv4::Header { kind: *kind, code: *code, rest: *rest }.emit(&mut buffer, payload),
            },
            Upper::Other(_) => return payload.to_vec(),
        };
        buffer.truncate(written.expect("a packet that IP can carry"));
        buffer
    }
}

fn ether(dst: [u8; 6], src: [u8; 6], ethertype: u16) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let header = ethernet::Header { dst: MacAddr(dst), src: MacAddr(src), ethertype };
    header.emit(&mut frame).expect("room for the header");
    frame
}

fn arp_frame(dst: [u8; 6], packet: &arp::Packet) -> Vec<u8> {
    let mut frame = ether(dst, packet.sender_mac.0, ethertype::ARP);
    let at = frame.len();
    frame.resize(at + arp::PACKET_LEN, 0);
    packet.emit(&mut frame[at..]).expect("room for the packet");
    frame
}

/// An ARP request, broadcast.
pub fn arp_request(mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let packet = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: MacAddr(mac),
        sender_ip: sender,
        target_mac: MacAddr::ZERO,
        target_ip: target,
    };
    arp_frame(MacAddr::BROADCAST.0, &packet)
}

/// The ARP reply of `mac`, which has the address `sender`.
pub fn arp_reply(mac: [u8; 6], sender: Ipv4Addr, to: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
    let packet = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: MacAddr(mac),
        sender_ip: sender,
        target_mac: MacAddr(to),
        target_ip: target,
    };
    arp_frame(to, &packet)
}

fn nd_frame(macs: ([u8; 6], [u8; 6]), src: Ipv6Addr, dst: Ipv6Addr, message: &ndp::Message) -> Vec<u8> {
    let length = message.emit_len();
    let (to, from) = macs;
    let mut frame = ether(to, from, ethertype::IPV6);
    let l3 = frame.len();
    frame.resize(l3 + ipv6::HEADER_LEN + length, 0);
    let ip =
        ipv6::Header { hop_limit: ndp::HOP_LIMIT, ..ipv6::Header::new(src, dst, protocol::ICMPV6, length) };
    let l4 = l3 + ip.emit(&mut frame[l3..]).expect("room for the header");
    message.emit(&mut frame[l4..], src, dst).expect("room for the message");
    frame
}

/// A neighbour solicitation to the target's solicited-node group. From `::` it is a probe for duplicates (RFC 4862, 5.4) and tells
/// no link-layer address.
pub fn neighbor_solicitation(mac: [u8; 6], src: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = ndp::solicited_node(target);
    let link_layer = (!src.is_unspecified()).then_some(MacAddr(mac));
    let message = ndp::Message::Solicitation { target, link_layer };
    nd_frame((ndp::multicast_mac(group).0, mac), src, group, &message)
}

/// The solicited neighbour advertisement of `mac`, which has the address `src`.
pub fn neighbor_advertisement(mac: [u8; 6], src: Ipv6Addr, to: [u8; 6], dst: Ipv6Addr) -> Vec<u8> {
    let flags = ndp::flags::SOLICITED | ndp::flags::OVERRIDE;
    let message = ndp::Message::Advertisement { flags, target: src, link_layer: Some(MacAddr(mac)) };
    nd_frame((to, mac), src, dst, &message)
}

/// Writes the IPv4 header checksum anew, after an edit of a frame.
pub fn fix_ipv4(frame: &mut [u8]) {
    let l3 = ethernet::HEADER_LEN;
    let length = usize::from(frame[l3] & 0xf) * 4;
    let at = l3 + ipv4::field::CHECKSUM.start;
    frame[at..at + 2].fill(0);
    let checksum = wire::checksum::checksum(&frame[l3..l3 + length]);
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Meta;
    use pipeline::parse::{Class, parse};

    #[test]
    fn frames_read_back_as_they_were_meant() {
        let udp = Build::udp("10.0.0.1", "10.0.0.2").ports(7, 8).payload(3);
        let rows: Vec<(Vec<u8>, Class, &str)> = vec![
            (udp.frame(), Class::Udp, "udp 10.0.0.1:7 > 10.0.0.2:8"),
            (Build::udp("fd00::1", "fd00::2").frame(), Class::Udp, "udp [fd00::1]:1000 > [fd00::2]:53"),
            (Build::tcp("10.0.0.1", "10.0.0.2").frame(), Class::Tcp, "tcp 10.0.0.1:1000 > 10.0.0.2:80"),
            (
                Build::tcp("fd00::1", "fd00::2").options(&[1, 1, 1, 0]).payload(9).frame(),
                Class::Tcp,
                "tcp [fd00::1]:1000 > [fd00::2]:80",
            ),
            (
                Build::echo_request("10.0.0.1", "10.0.0.2", 5, 1).frame(),
                Class::EchoRequest,
                "icmp echo-request 10.0.0.1 > 10.0.0.2 id 5",
            ),
            (
                Build::echo_reply("fd00::1", "fd00::2", 5, 1).frame(),
                Class::EchoReply,
                "icmpv6 echo-reply fd00::1 > fd00::2 id 5",
            ),
            (Build::other("10.0.0.1", "10.0.0.2", 47).frame(), Class::Other, "gre 10.0.0.1 > 10.0.0.2"),
            (
                Build::unreachable("10.0.0.2", &udp.frame()).frame(),
                Class::IcmpError,
                "udp 10.0.0.1:7 > 10.0.0.2:8",
            ),
            (
                Build::unreachable("fd00::2", &Build::udp("fd00::1", "fd00::2").frame()).frame(),
                Class::IcmpError,
                "udp [fd00::1]:1000 > [fd00::2]:53",
            ),
        ];
        for (frame, class, text) in rows {
            let headers = parse(&frame, &Meta::default()).expect(text);
            assert_eq!((headers.class, headers.key.to_string()), (class, text.to_string()));
        }
    }

    #[test]
    fn neighbours_read_back() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let (c, d): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let rows = [
            (arp_request(SRC_MAC, a, b), Class::ArpRequest),
            (arp_reply(SRC_MAC, a, DST_MAC, b), Class::ArpReply),
            (neighbor_solicitation(SRC_MAC, c, d), Class::NeighborSolicitation),
            (neighbor_solicitation(SRC_MAC, Ipv6Addr::UNSPECIFIED, d), Class::NeighborSolicitation),
            (neighbor_advertisement(SRC_MAC, c, DST_MAC, d), Class::NeighborAdvertisement),
        ];
        for (frame, class) in rows {
            assert_eq!(parse(&frame, &Meta::default()).map(|h| h.class), Ok(class));
        }
    }

    #[test]
    fn an_edit_is_fixed() {
        let mut frame = Build::udp("10.0.0.1", "10.0.0.2").frame();
        frame[14 + 8] = 9;
        assert_eq!(parse(&frame, &Meta::default()).unwrap_err(), packet::DropReason::Ipv4ChecksumInvalid);
        fix_ipv4(&mut frame);
        assert_eq!(parse(&frame, &Meta::default()).map(|h| h.ttl), Ok(9));
    }
}
