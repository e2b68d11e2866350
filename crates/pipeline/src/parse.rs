//! The parse pass: from a frame to its flow key and the few values that later passes need. One look at each header, no
//! allocation, no panic on any bytes.
//!
//! The checks come in the order of the headers, and the first that fails names the drop: Ethernet, IP header and length,
//! header checksum, source, destination, hops, fragment, and last the upper layer.

use core::net::{Ipv4Addr, Ipv6Addr};
use packet::{Checksum, DropReason, Meta};
use wire::ethernet::ethertype;
use wire::ip::{self, protocol};
use wire::{WireError, arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp};

use crate::key::{FlowKey, FlowKind};

/// What kind of packet this is for the passes behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A TCP segment.
    Tcp,
    /// A UDP datagram.
    Udp,
    /// An ICMP or ICMPv6 echo request.
    EchoRequest,
    /// An ICMP or ICMPv6 echo reply.
    EchoReply,
    /// An ICMP error about a packet of a connection: destination unreachable, packet too big, time exceeded, parameter problem.
    IcmpError,
    /// Another protocol over IP, known by its number and addresses only.
    Other,
    /// An ARP request, gratuitous ones and probes included.
    ArpRequest,
    /// An ARP reply.
    ArpReply,
    /// A neighbor solicitation.
    NeighborSolicitation,
    /// A neighbor advertisement.
    NeighborAdvertisement,
}

/// What connection tracking wants of a TCP header; all zero for other protocols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFields {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Window, unscaled.
    pub window: u16,
    /// Control bits, see [`wire::tcp::flags`].
    pub flags: u8,
    /// Shift count of the window scale option of a SYN, at most 14 (RFC 7323, 2.3); [`TcpFields::NO_SCALE`] when it has none, and on
    /// every other segment.
    pub window_scale: u8,
}

impl TcpFields {
    /// No window scale option.
    pub const NO_SCALE: u8 = 0xff;
}

/// What one pass over a frame's headers found. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The flow, with ENI 0 for the caller to fill in.
    ///
    /// For [`Class::IcmpError`] that of the quoted packet as it was sent, whose source received the error: the connection lies under
    /// this key or its reverse, and the error itself travels along the reverse. For ARP the sender's and the target's protocol
    /// addresses with protocol 0. For neighbor discovery the packet's source, and in place of the destination the target address:
    /// what a solicitation asks for and an advertisement claims.
    pub key: FlowKey,
    /// TCP's fields.
    pub tcp: TcpFields,
    /// Bytes from `l3` to the end of the IP (or ARP) packet: without the padding of short frames.
    pub l3_len: u32,
    /// Where the network header (or the ARP packet) begins.
    pub l3: u16,
    /// Where the transport header begins, behind IPv6's extension headers.
    pub l4: u16,
    /// Where the payload of TCP, UDP or ICMP (behind 8 bytes) begins; else as `l4`.
    pub payload: u16,
    /// See [`Headers::link_layer_offset`]; 0 for none.
    link_layer: u16,
    /// The kind of packet.
    pub class: Class,
    /// TTL or hop limit; 0 for ARP.
    pub ttl: u8,
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
}

const _: () = assert!(size_of::<Headers>() <= 128);

impl Headers {
    /// Where the link-layer address lies that an ARP or neighbor discovery message tells: the sender's of ARP and of a solicitation,
    /// the target's of an advertisement. None when a discovery message has no such option.
    #[inline]
    pub fn link_layer_offset(&self) -> Option<usize> {
        (self.link_layer != 0).then_some(usize::from(self.link_layer))
    }

    /// Where the target's hardware address of an ARP packet lies.
    #[inline]
    pub fn arp_target_offset(&self) -> Option<usize> {
        matches!(self.class, Class::ArpRequest | Class::ArpReply)
            .then_some(usize::from(self.l3) + arp::field::TARGET_MAC.start)
    }

    /// Bytes from the transport header to the end of the packet.
    #[inline]
    pub fn l4_len(&self) -> usize {
        self.l3_len as usize - usize::from(self.l4 - self.l3)
    }
}

/// Where the network header begins: frames are untagged.
const L3: usize = ethernet::HEADER_LEN;

/// Parses an Ethernet II frame, which may be a super-frame as `meta` says.
///
/// # Errors
/// The reason to drop the frame: see the variants of [`DropReason`] up to `nd_invalid`.
#[inline]
pub fn parse(frame: &[u8], meta: &Meta) -> Result<Headers, DropReason> {
    let ethernet = ethernet::View::new_checked(frame).map_err(|_| DropReason::EthernetTruncated)?;
    match ethernet.ethertype() {
        ethertype::IPV4 => parse_ipv4(&ethernet, meta),
        ethertype::IPV6 => parse_ipv6(&ethernet, meta),
        ethertype::ARP => parse_arp(ethernet.payload()),
        ethertype::VLAN | ethertype::SERVICE_VLAN => Err(DropReason::VlanUnsupported),
        _ => Err(DropReason::EthertypeUnsupported),
    }
}

fn parse_ipv4(ethernet: &ethernet::View<'_>, meta: &Meta) -> Result<Headers, DropReason> {
    let bytes = ethernet.payload();
    let view =
        if meta.is_gso() { ipv4::View::new_super_frame(bytes) } else { ipv4::View::new_checked(bytes) };
    let ip = view.map_err(|error| match error {
        WireError::PacketLength { .. } => DropReason::Ipv4LengthInvalid,
        _ => DropReason::Ipv4HeaderInvalid,
    })?;
    if !ip.checksum_valid() {
        return Err(DropReason::Ipv4ChecksumInvalid);
    }
    let (src, dst) = (ip.src(), ip.dst());
    if !can_be_source_v4(src) {
        return Err(DropReason::IpSourceInvalid);
    }
    if ethernet.dst().is_multicast() || dst.is_multicast() || dst.is_broadcast() {
        return Err(DropReason::MulticastUnsupported);
    }
    if ip.ttl() == 0 {
        return Err(DropReason::TtlExceeded);
    }
    if ip.is_fragment() {
        return Err(DropReason::FragmentUnsupported);
    }
    let key = FlowKey::new(ip::map_v4(src), ip::map_v4(dst), 0, 0, ip.protocol());
    // Made in each arm anew: in one place they would lie in memory for the rare arms' sake, at a third of the pass's time.
    let headers = || Headers {
        ttl: ip.ttl(),
        tos: ip.tos(),
        ..Headers::network(key, Class::Other, ip.packet_len(), ip.header_len())
    };
    match key.proto {
        protocol::ICMP => parse_icmpv4(headers(), ip.payload(), meta),
        // Each ICMP belongs to its own IP: RFC 4443 (1).
        protocol::ICMPV6 => Err(DropReason::IcmpTypeUnsupported),
        _ => parse_transport(headers(), ip.payload(), meta),
    }
}

fn parse_ipv6(ethernet: &ethernet::View<'_>, meta: &Meta) -> Result<Headers, DropReason> {
    let bytes = ethernet.payload();
    let view =
        if meta.is_gso() { ipv6::View::new_super_frame(bytes) } else { ipv6::View::new_checked(bytes) };
    let ip = view.map_err(|error| match error {
        WireError::PacketLength { .. } => DropReason::Ipv6LengthInvalid,
        _ => DropReason::Ipv6HeaderInvalid,
    })?;
    let upper = ip.upper_layer().map_err(|_| DropReason::Ipv6ExtensionInvalid)?;
    let payload = ip.payload().get(upper.offset - ipv6::HEADER_LEN..).unwrap_or_default();
    let (src, dst) = (ip.src(), ip.dst());
    // A mapped address on the wire would share its key with an IPv4 flow.
    if ip::is_v4(dst.to_bits()) {
        return Err(DropReason::Ipv6HeaderInvalid);
    }
    let solicitation = upper.protocol == protocol::ICMPV6
        && payload.get(icmpv6::field::TYPE) == Some(&icmpv6::kind::NEIGHBOR_SOLICITATION);
    let detection = solicitation && src.is_unspecified();
    if !detection && !can_be_source_v6(src) {
        return Err(DropReason::IpSourceInvalid);
    }
    let group = ethernet.dst().is_multicast() || dst.is_multicast();
    let resolution = solicitation && ndp::solicited_node(dst) == dst;
    if group && !resolution {
        return Err(DropReason::MulticastUnsupported);
    }
    if ip.hop_limit() == 0 {
        return Err(DropReason::TtlExceeded);
    }
    if upper.fragment.is_some_and(|fragment| !fragment.is_atomic()) {
        return Err(DropReason::FragmentUnsupported);
    }
    let key = FlowKey::new(src.to_bits(), dst.to_bits(), 0, 0, upper.protocol);
    let headers = || Headers {
        ttl: ip.hop_limit(),
        tos: ip.traffic_class(),
        ..Headers::network(key, Class::Other, ip.packet_len(), upper.offset)
    };
    match (key.proto, payload) {
        (
            protocol::ICMPV6,
            [icmpv6::kind::NEIGHBOR_SOLICITATION | icmpv6::kind::NEIGHBOR_ADVERTISEMENT, ..],
        ) => {
            // RFC 6980 (5): discovery messages with a fragment header are ignored.
            let message = if upper.fragment.is_none() { payload } else { &[] };
            parse_nd(headers(), src, dst, message, meta)
        }
        (protocol::ICMPV6, _) => parse_icmpv6(headers(), src, dst, payload, meta),
        (protocol::ICMP, _) => Err(DropReason::IcmpTypeUnsupported),
        _ => parse_transport(headers(), payload, meta),
    }
}

fn parse_arp(bytes: &[u8]) -> Result<Headers, DropReason> {
    let arp = arp::View::new_checked(bytes).map_err(|_| DropReason::ArpInvalid)?;
    let class = match arp.operation() {
        arp::Operation::Request => Class::ArpRequest,
        arp::Operation::Reply => Class::ArpReply,
    };
    let key = FlowKey::new(ip::map_v4(arp.sender_ip()), ip::map_v4(arp.target_ip()), 0, 0, 0);
    Ok(Headers {
        link_layer: (L3 + arp::field::SENDER_MAC.start) as u16,
        ..Headers::network(key, class, arp::PACKET_LEN, arp::PACKET_LEN)
    })
}

/// TCP, UDP, and what is only known by its number.
#[inline(always)]
fn parse_transport(mut headers: Headers, bytes: &[u8], meta: &Meta) -> Result<Headers, DropReason> {
    match headers.key.proto {
        protocol::TCP => {
            let tcp = tcp::View::new_checked(bytes).map_err(|_| DropReason::TcpHeaderInvalid)?;
            let flags = tcp.flags();
            if !are_valid_together(flags) {
                return Err(DropReason::TcpFlagsInvalid);
            }
            let scale = if flags & tcp::flags::SYN != 0 { tcp.window_scale() } else { None };
            (headers.key.sport, headers.key.dport) = (tcp.src_port(), tcp.dst_port());
            headers.class = Class::Tcp;
            headers.payload += tcp.header_len() as u16;
            headers.tcp = TcpFields {
                seq: tcp.seq(),
                ack: tcp.ack(),
                window: tcp.window(),
                flags,
                window_scale: scale.unwrap_or(TcpFields::NO_SCALE),
            };
        }
        protocol::UDP => {
            let view =
                if meta.is_gso() { udp::View::new_super_frame(bytes) } else { udp::View::new_checked(bytes) };
            let udp = view.map_err(|_| DropReason::UdpLengthInvalid)?;
            (headers.key.sport, headers.key.dport) = (udp.src_port(), udp.dst_port());
            headers.class = Class::Udp;
            headers.payload += udp::HEADER_LEN as u16;
        }
        _ => {}
    }
    Ok(headers)
}

fn parse_icmpv4(headers: Headers, bytes: &[u8], meta: &Meta) -> Result<Headers, DropReason> {
    let icmp = icmpv4::View::new_checked(bytes).map_err(|_| DropReason::IcmpHeaderInvalid)?;
    if let Some(kind) = echo_v4(&icmp) {
        Ok(headers.echo(kind, icmp.identifier()))
    } else if icmpv4::is_error(icmp.kind()) {
        headers.error(is_partial(meta) || icmp.checksum_valid(), quoted_v4(icmp.payload()))
    } else {
        Err(DropReason::IcmpTypeUnsupported)
    }
}

fn parse_icmpv6(
    headers: Headers,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    bytes: &[u8],
    meta: &Meta,
) -> Result<Headers, DropReason> {
    let icmp = icmpv6::View::new_checked(bytes).map_err(|_| DropReason::IcmpHeaderInvalid)?;
    if let Some(kind) = echo_v6(&icmp) {
        Ok(headers.echo(kind, icmp.identifier()))
    } else if icmpv6::is_error(icmp.kind()) {
        headers.error(is_partial(meta) || icmp.checksum_valid(src, dst), quoted_v6(icmp.payload()))
    } else {
        Err(DropReason::IcmpTypeUnsupported)
    }
}

/// A neighbor solicitation or advertisement, RFC 4861 (7.1).
fn parse_nd(
    mut headers: Headers,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    bytes: &[u8],
    meta: &Meta,
) -> Result<Headers, DropReason> {
    let nd = ndp::View::new_checked(bytes)
        .ok()
        .filter(|nd| nd.is_valid_between(src, dst, headers.ttl) && !ip::is_v4(nd.target().to_bits()))
        .ok_or(DropReason::NdInvalid)?;
    let icmp = icmpv6::View::new_checked(bytes).map_err(|_| DropReason::NdInvalid)?;
    if !is_partial(meta) && !icmp.checksum_valid(src, dst) {
        return Err(DropReason::IcmpChecksumInvalid);
    }
    headers.key.set_dst(nd.target().to_bits());
    headers.class =
        if nd.is_solicitation() { Class::NeighborSolicitation } else { Class::NeighborAdvertisement };
    headers.payload += icmpv6::HEADER_LEN as u16;
    headers.link_layer = nd.link_layer_offset().map_or(0, |offset| headers.l4 + offset as u16);
    Ok(headers)
}

impl Headers {
    /// Headers of a packet of `l3_len` bytes whose network headers take `header_len`. Offsets fit 16 bits: IPv6's extension
    /// headers are bounded to eight of 2 KiB.
    #[inline(always)]
    fn network(key: FlowKey, class: Class, l3_len: usize, header_len: usize) -> Headers {
        let l4 = (L3 + header_len) as u16;
        Headers {
            key,
            tcp: TcpFields::default(),
            l3_len: l3_len as u32,
            l3: L3 as u16,
            l4,
            payload: l4,
            link_layer: 0,
            class,
            ttl: 0,
            tos: 0,
        }
    }

    fn echo(self, kind: FlowKind, identifier: u16) -> Headers {
        let class = if kind == FlowKind::EchoRequest { Class::EchoRequest } else { Class::EchoReply };
        let key = FlowKey::echo(self.key.src(), self.key.dst(), identifier, self.key.proto, kind);
        Headers { key, class, payload: self.l4 + icmpv4::HEADER_LEN as u16, ..self }
    }

    /// An error goes to whoever sent the packet that it quotes: RFC 792, RFC 4443 (2.2). One that does not is about a connection
    /// that its receiver has no part in.
    fn error(self, intact: bool, quoted: Option<FlowKey>) -> Result<Headers, DropReason> {
        if !intact {
            return Err(DropReason::IcmpChecksumInvalid);
        }
        let key =
            quoted.filter(|quoted| quoted.src() == self.key.dst()).ok_or(DropReason::IcmpQuoteInvalid)?;
        Ok(Headers { key, class: Class::IcmpError, payload: self.l4 + icmpv4::HEADER_LEN as u16, ..self })
    }
}

/// Which side of an echo conversation this is, if it is one.
fn echo_v4(icmp: &icmpv4::View<'_>) -> Option<FlowKind> {
    match (icmp.kind(), icmp.code()) {
        (icmpv4::kind::ECHO_REQUEST, 0) => Some(FlowKind::EchoRequest),
        (icmpv4::kind::ECHO_REPLY, 0) => Some(FlowKind::EchoReply),
        _ => None,
    }
}

/// The same for ICMPv6.
fn echo_v6(icmp: &icmpv6::View<'_>) -> Option<FlowKind> {
    match (icmp.kind(), icmp.code()) {
        (icmpv6::kind::ECHO_REQUEST, 0) => Some(FlowKind::EchoRequest),
        (icmpv6::kind::ECHO_REPLY, 0) => Some(FlowKind::EchoReply),
        _ => None,
    }
}

/// The flow of a packet quoted by an ICMP error, as that packet was sent.
fn quoted_v4(bytes: &[u8]) -> Option<FlowKey> {
    let ip = ipv4::View::new_quoted(bytes).ok()?;
    if ip.fragment_offset() != 0 {
        return None;
    }
    let key = FlowKey::new(ip::map_v4(ip.src()), ip::map_v4(ip.dst()), 0, 0, ip.protocol());
    match key.proto {
        protocol::ICMP => {
            let icmp = icmpv4::View::new_checked(ip.payload()).ok()?;
            let kind = echo_v4(&icmp)?;
            Some(FlowKey::echo(key.src(), key.dst(), icmp.identifier(), key.proto, kind))
        }
        protocol::ICMPV6 => None,
        _ => quoted_ports(key, ip.payload()),
    }
}

/// The flow of a packet quoted by an ICMPv6 error, as that packet was sent.
fn quoted_v6(bytes: &[u8]) -> Option<FlowKey> {
    let ip = ipv6::View::new_quoted(bytes).ok()?;
    let upper = ip.upper_layer().ok()?;
    let key = FlowKey::new(ip.src().to_bits(), ip.dst().to_bits(), 0, 0, upper.protocol);
    if ip::is_v4(key.src()) || ip::is_v4(key.dst()) || upper.fragment.is_some_and(|f| f.offset != 0) {
        return None;
    }
    let payload = ip.payload().get(upper.offset - ipv6::HEADER_LEN..)?;
    match key.proto {
        protocol::ICMPV6 => {
            let icmp = icmpv6::View::new_checked(payload).ok()?;
            let kind = echo_v6(&icmp)?;
            Some(FlowKey::echo(key.src(), key.dst(), icmp.identifier(), key.proto, kind))
        }
        // A fragment was one from its source on (RFC 8200, 4.5), and so was dropped here.
        protocol::ICMP | protocol::FRAGMENT => None,
        _ => quoted_ports(key, payload),
    }
}

/// The ports from the 8 bytes that every quote has at least (RFC 792); a whole TCP header need not be there.
fn quoted_ports(mut key: FlowKey, payload: &[u8]) -> Option<FlowKey> {
    match key.proto {
        protocol::TCP | protocol::UDP => {
            let [s0, s1, d0, d1, _, _, _, _] = *payload.first_chunk::<8>()?;
            (key.sport, key.dport) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
        }
        _ => {}
    }
    Some(key)
}

/// Whether the checksum is still to be completed, so that it can't be held against the bytes yet.
fn is_partial(meta: &Meta) -> bool {
    matches!(meta.csum, Checksum::Partial { .. })
}

/// RFC 1122 (3.2.1.3): neither "this network" (which holds the unspecified address), loopback, multicast nor broadcast.
fn can_be_source_v4(address: Ipv4Addr) -> bool {
    !(address.octets()[0] == 0 || address.is_loopback() || address.is_multicast() || address.is_broadcast())
}

/// RFC 4291 (2.5.2, 2.5.3, 2.7): neither unspecified, loopback nor multicast; and not mapped, which is for programs only.
fn can_be_source_v6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || ip::is_v4(address.to_bits()))
}

/// No segment opens a connection and ends it, and none says nothing: RFC 9293 (3.5, 3.6).
fn are_valid_together(flags: u8) -> bool {
    use tcp::flags::{ACK, FIN, PSH, RST, SYN, URG};
    let contradictory = flags & SYN != 0 && flags & (FIN | RST) != 0;
    !contradictory && flags & (FIN | SYN | RST | PSH | ACK | URG) != 0
}

#[cfg(test)]
mod tests;
