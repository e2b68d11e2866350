//! Rows of frames: what each is, or why it is dropped.

use super::*;
use core::net::IpAddr;
use packet::GsoType;
use proptest::prelude::*;
use wire::ethernet::MacAddr;
use wire::tcp::flags;

mod captures;

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// A frame from A to B.
fn frame(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 14];
    ethernet::Header { dst: MAC_B, src: MAC_A, ethertype }.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn ip4(header: ipv4::Header<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    let header = ipv4::Header { payload_len: payload.len(), ..header };
    let length = header.emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes.extend(payload);
    bytes
}

fn ip6(header: ipv6::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    ipv6::Header { payload_len: payload.len(), ..header }.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    frame(ethertype::IPV4, &ip4(ipv4::Header::new(A4, B4, protocol, 0), payload))
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    frame(ethertype::IPV6, &ip6(ipv6::Header::new(A6, B6, next, 0), payload))
}

fn udp(src: IpAddr, dst: IpAddr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8 + payload.len()];
    udp::Header { src_port: 5000, dst_port: 53 }.emit(&mut bytes, src, dst, payload).unwrap();
    bytes
}

fn udp4() -> Vec<u8> {
    udp(A4.into(), B4.into(), b"data")
}

fn udp6() -> Vec<u8> {
    udp(A6.into(), B6.into(), b"data")
}

fn tcp4(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = tcp::Header {
        src_port: 5000,
        dst_port: 80,
        seq: 0x0102_0304,
        ack: 0x0506_0708,
        flags,
        window: 0x7fff,
        urgent: 0,
        options,
    };
    let mut bytes = vec![0; 60 + payload.len()];
    let length = header.emit(&mut bytes, A4.into(), B4.into(), payload).unwrap();
    bytes.truncate(length);
    bytes
}

fn icmp4(kind: u8, code: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8 + payload.len()];
    icmpv4::Header { kind, code, rest: [0x12, 0x34, 0, 1] }.emit(&mut bytes, payload).unwrap();
    bytes
}

fn icmp6(kind: u8, code: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 8 + payload.len()];
    icmpv6::Header { kind, code, rest: [0x12, 0x34, 0, 1] }.emit(&mut bytes, A6, B6, payload).unwrap();
    bytes
}

/// A discovery message in a whole frame.
fn nd(message: ndp::Message, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes, src, dst).unwrap();
    let header = ipv6::Header { hop_limit, ..ipv6::Header::new(src, dst, protocol::ICMPV6, 0) };
    let mut frame = frame(ethertype::IPV6, &ip6(header, &bytes));
    if dst.is_multicast() {
        frame[..6].copy_from_slice(&ndp::multicast_mac(dst).0);
    }
    frame
}

fn solicit(link_layer: Option<MacAddr>) -> ndp::Message {
    ndp::Message::Solicitation { target: B6, link_layer }
}

fn advert(flags: u8) -> ndp::Message {
    ndp::Message::Advertisement { flags, target: A6, link_layer: Some(MAC_A) }
}

fn arp(operation: arp::Operation) -> Vec<u8> {
    let mut bytes = [0; 28];
    let packet =
        arp::Packet { operation, sender_mac: MAC_A, sender_ip: A4, target_mac: MacAddr::ZERO, target_ip: B4 };
    packet.emit(&mut bytes).unwrap();
    frame(ethertype::ARP, &bytes)
}

/// A quoted packet as an error to `A` carries it: what A sent to B.
fn quote4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ip4(ipv4::Header::new(A4, B4, protocol, 0), payload)
}

/// An ICMP error from a router to A.
fn error4(kind: u8, quote: &[u8]) -> Vec<u8> {
    let router = Ipv4Addr::new(10, 0, 0, 254);
    frame(ethertype::IPV4, &ip4(ipv4::Header::new(router, A4, protocol::ICMP, 0), &icmp4(kind, 0, quote)))
}

fn error6(kind: u8, quote: &[u8]) -> Vec<u8> {
    let router = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfe);
    let mut bytes = vec![0; 8 + quote.len()];
    icmpv6::Header { kind, code: 0, rest: [0; 4] }.emit(&mut bytes, router, A6, quote).unwrap();
    frame(ethertype::IPV6, &ip6(ipv6::Header::new(router, A6, protocol::ICMPV6, 0), &bytes))
}

fn edit(mut frame: Vec<u8>, change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame
}

/// Changes the IPv4 header and corrects its checksum.
fn edit_ip4(frame: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    edit(frame, |f| {
        change(&mut f[L3..]);
        f[24..26].fill(0);
        let length = usize::from(f[L3] & 15) * 4;
        let checksum = wire::checksum::checksum(&f[L3..L3 + length]);
        f[24..26].copy_from_slice(&checksum.to_be_bytes());
    })
}

fn from4(src: [u8; 4]) -> Vec<u8> {
    edit_ip4(v4(17, &udp4()), |ip| ip[12..16].copy_from_slice(&src))
}

fn to4(dst: [u8; 4]) -> Vec<u8> {
    edit_ip4(v4(17, &udp4()), |ip| ip[16..20].copy_from_slice(&dst))
}

fn between6(src: &str, dst: &str) -> Vec<u8> {
    let header = ipv6::Header::new(src.parse().unwrap(), dst.parse().unwrap(), 17, 0);
    frame(ethertype::IPV6, &ip6(header, &udp6()))
}

fn key4(sport: u16, dport: u16, proto: u8) -> FlowKey {
    FlowKey::new(ip::map_v4(A4), ip::map_v4(B4), sport, dport, proto)
}

fn key6(sport: u16, dport: u16, proto: u8) -> FlowKey {
    FlowKey::new(A6.to_bits(), B6.to_bits(), sport, dport, proto)
}

fn echo(key: FlowKey, kind: FlowKind) -> FlowKey {
    FlowKey::echo(key.src(), key.dst(), 0x1234, key.proto, kind)
}

fn gso() -> Meta {
    Meta { gso: GsoType::TcpV4, gso_size: 1448, ..Meta::default() }
}

#[test]
fn classes_keys_and_offsets() {
    use Class::*;
    let hop_by_hop = [[17, 0, 1, 4, 0, 0, 0, 0].to_vec(), udp6()].concat();
    let atomic = [[17, 0, 0, 0, 0, 0, 0, 1].to_vec(), udp6()].concat();
    let options = ipv4::Header { options: &[1; 8], ..ipv4::Header::new(A4, B4, 17, 0) };
    let solicited = ndp::solicited_node(B6);
    let discovery = FlowKey::new(A6.to_bits(), B6.to_bits(), 0, 0, 58);
    let probe = FlowKey::new(0, B6.to_bits(), 0, 0, 58);
    let claim = FlowKey::new(A6.to_bits(), A6.to_bits(), 0, 0, 58);
    let rows = [
        // name, frame, class, key, l4, payload, l3_len
        ("TCP", v4(6, &tcp4(flags::ACK, &[], b"x")), Tcp, key4(5000, 80, 6), 34, 54, 41),
        ("TCP with options", v4(6, &tcp4(flags::ACK, &[1; 12], b"")), Tcp, key4(5000, 80, 6), 34, 66, 52),
        ("UDP", v4(17, &udp4()), Udp, key4(5000, 53, 17), 34, 42, 32),
        ("UDP with IP options", frame(0x0800, &ip4(options, &udp4())), Udp, key4(5000, 53, 17), 42, 50, 40),
        ("UDP, padded", edit(v4(17, &udp4()), |f| f.resize(60, 0xee)), Udp, key4(5000, 53, 17), 34, 42, 32),
        (
            "echo request",
            v4(1, &icmp4(8, 0, b"")),
            EchoRequest,
            echo(key4(0, 0, 1), FlowKind::EchoRequest),
            34,
            42,
            28,
        ),
        (
            "echo reply",
            v4(1, &icmp4(0, 0, b"")),
            EchoReply,
            echo(key4(0, 0, 1), FlowKind::EchoReply),
            34,
            42,
            28,
        ),
        ("GRE", v4(47, &[0; 4]), Other, key4(0, 0, 47), 34, 34, 24),
        ("empty", v4(253, &[]), Other, key4(0, 0, 253), 34, 34, 20),
        ("UDP over IPv6", v6(17, &udp6()), Udp, key6(5000, 53, 17), 54, 62, 52),
        ("UDP behind hop-by-hop options", v6(0, &hop_by_hop), Udp, key6(5000, 53, 17), 62, 70, 60),
        ("atomic fragment", v6(44, &atomic), Udp, key6(5000, 53, 17), 62, 70, 60),
        (
            "echo request v6",
            v6(58, &icmp6(128, 0, b"")),
            EchoRequest,
            echo(key6(0, 0, 58), FlowKind::EchoRequest),
            54,
            62,
            48,
        ),
        (
            "echo reply v6",
            v6(58, &icmp6(129, 0, b"")),
            EchoReply,
            echo(key6(0, 0, 58), FlowKind::EchoReply),
            54,
            62,
            48,
        ),
        ("no next header", v6(59, &[]), Other, key6(0, 0, 59), 54, 54, 40),
        ("ARP request", arp(arp::Operation::Request), ArpRequest, key4(0, 0, 0), 42, 42, 28),
        ("ARP reply", arp(arp::Operation::Reply), ArpReply, key4(0, 0, 0), 42, 42, 28),
        (
            "solicitation",
            nd(solicit(Some(MAC_A)), A6, solicited, 255),
            NeighborSolicitation,
            discovery,
            54,
            62,
            72,
        ),
        ("unicast solicitation", nd(solicit(None), A6, B6, 255), NeighborSolicitation, discovery, 54, 62, 64),
        (
            "address detection",
            nd(solicit(None), Ipv6Addr::UNSPECIFIED, solicited, 255),
            NeighborSolicitation,
            probe,
            54,
            62,
            64,
        ),
        (
            "advertisement",
            nd(advert(ndp::flags::SOLICITED), A6, B6, 255),
            NeighborAdvertisement,
            claim,
            54,
            62,
            72,
        ),
    ];
    for (name, frame, class, key, l4, payload, l3_len) in rows {
        let headers = parse(&frame, &Meta::default()).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        assert_eq!((headers.class, headers.key), (class, key), "{name}");
        assert_eq!(
            (headers.l3, headers.l4, headers.payload, headers.l3_len),
            (14, l4, payload, l3_len),
            "{name}"
        );
        assert_eq!(headers.l4_len(), l3_len as usize + 14 - usize::from(l4), "{name}");
    }
}

#[test]
fn fields_of_tcp_and_ip() {
    let syn = tcp4(flags::SYN, &[2, 4, 5, 0xb4, 1, 3, 3, 9], b"");
    let frame = edit_ip4(v4(6, &syn), |ip| (ip[1], ip[8]) = (0x2e, 7));
    let headers = parse(&frame, &Meta::default()).unwrap();
    let tcp =
        TcpFields { seq: 0x0102_0304, ack: 0x0506_0708, window: 0x7fff, flags: flags::SYN, window_scale: 9 };
    assert_eq!((headers.tcp, headers.tos, headers.ttl), (tcp, 0x2e, 7));

    // The option counts on a SYN alone (RFC 7323, 2.2).
    let ack = parse(&v4(6, &tcp4(flags::ACK, &[1, 3, 3, 9], b"")), &Meta::default()).unwrap();
    assert_eq!(ack.tcp.window_scale, TcpFields::NO_SCALE);
    let plain = parse(&v4(6, &tcp4(flags::SYN, &[], b"")), &Meta::default()).unwrap();
    assert_eq!(plain.tcp.window_scale, TcpFields::NO_SCALE);

    let header = ipv6::Header { traffic_class: 0xb9, hop_limit: 3, ..ipv6::Header::new(A6, B6, 17, 0) };
    let headers =
        parse(&super::tests::frame(ethertype::IPV6, &ip6(header, &udp6())), &Meta::default()).unwrap();
    assert_eq!((headers.tcp, headers.tos, headers.ttl), (TcpFields::default(), 0xb9, 3));
}

#[test]
fn link_layer_addresses() {
    let solicited = ndp::solicited_node(B6);
    let rows = [
        ("ARP request", arp(arp::Operation::Request), Some(22), Some(32)),
        ("ARP reply", arp(arp::Operation::Reply), Some(22), Some(32)),
        ("solicitation", nd(solicit(Some(MAC_A)), A6, solicited, 255), Some(80), None),
        ("solicitation without", nd(solicit(None), A6, solicited, 255), None, None),
        ("advertisement", nd(advert(0), A6, B6, 255), Some(80), None),
        ("UDP", v4(17, &udp4()), None, None),
    ];
    for (name, frame, link_layer, target) in rows {
        let headers = parse(&frame, &Meta::default()).unwrap();
        assert_eq!(
            (headers.link_layer_offset(), headers.arp_target_offset()),
            (link_layer, target),
            "{name}"
        );
        if let Some(at) = link_layer {
            assert_eq!(frame[at..at + 6], MAC_A.0, "{name}");
        }
    }
}

#[test]
fn errors_carry_the_key_of_what_they_quote() {
    let echo_quote = quote4(1, &icmp4(8, 0, b""));
    let v6_quote = |next, payload: &[u8]| ip6(ipv6::Header::new(A6, B6, next, 0), payload);
    let behind_options = [[17, 0, 1, 4, 0, 0, 0, 0].to_vec(), udp6()].concat();
    let more = ipv4::Header { more_fragments: true, ..ipv4::Header::new(A4, B4, 17, 0) };
    let rows = [
        ("unreachable, UDP", error4(3, &quote4(17, &udp4())), key4(5000, 53, 17)),
        (
            "unreachable, 8 bytes of TCP",
            error4(3, &quote4(6, &tcp4(flags::SYN, &[], b""))[..28]),
            key4(5000, 80, 6),
        ),
        ("time exceeded, echo", error4(11, &echo_quote), echo(key4(0, 0, 1), FlowKind::EchoRequest)),
        ("parameter problem, GRE", error4(12, &quote4(47, &[])), key4(0, 0, 47)),
        ("reassembly time exceeded", error4(11, &ip4(more, &udp4())), key4(5000, 53, 17)),
        ("unreachable v6", error6(1, &v6_quote(17, &udp6())), key6(5000, 53, 17)),
        ("too big", error6(2, &v6_quote(17, &udp6())[..48]), key6(5000, 53, 17)),
        ("time exceeded v6", error6(3, &v6_quote(0, &behind_options)), key6(5000, 53, 17)),
        (
            "parameter problem, echo",
            error6(4, &v6_quote(58, &icmp6(129, 0, b""))),
            echo(key6(0, 0, 58), FlowKind::EchoReply),
        ),
    ];
    for (name, frame, key) in rows {
        let headers = parse(&frame, &Meta::default()).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        assert_eq!((headers.class, headers.key), (Class::IcmpError, key), "{name}");
        assert_eq!(headers.payload, headers.l4 + 8, "{name}");
    }
}

#[test]
fn drops_of_link_and_network() {
    use DropReason::*;
    let good4 = || v4(17, &udp4());
    let good6 = || v6(17, &udp6());
    let fragment = |offset_more: u16| {
        let [hi, lo] = offset_more.to_be_bytes();
        v6(44, &[[17, 0, hi, lo, 0, 0, 0, 1].to_vec(), udp6()].concat())
    };
    let all = "ff02::1".parse().unwrap();
    let rows = [
        ("empty", vec![], EthernetTruncated),
        ("13 bytes", good4()[..13].to_vec(), EthernetTruncated),
        ("802.1Q", edit(good4(), |f| f[12..14].copy_from_slice(&[0x81, 0x00])), VlanUnsupported),
        ("802.1ad", edit(good4(), |f| f[12..14].copy_from_slice(&[0x88, 0xa8])), VlanUnsupported),
        ("802.3 length", edit(good4(), |f| f[12..14].copy_from_slice(&[0, 46])), EthertypeUnsupported),
        ("LLDP", edit(good4(), |f| f[12..14].copy_from_slice(&[0x88, 0xcc])), EthertypeUnsupported),
        ("no IPv4 header", good4()[..33].to_vec(), Ipv4HeaderInvalid),
        ("IPv4 with version 6", edit(good4(), |f| f[14] = 0x65), Ipv4HeaderInvalid),
        ("IHL 4", edit(good4(), |f| f[14] = 0x44), Ipv4HeaderInvalid),
        ("IHL beyond the frame", edit(good4(), |f| f[14] = 0x4f), Ipv4HeaderInvalid),
        ("total beyond the frame", edit_ip4(good4(), |ip| ip[3] += 1), Ipv4LengthInvalid),
        ("total below the header", edit_ip4(good4(), |ip| ip[3] = 19), Ipv4LengthInvalid),
        ("total 0 without GSO", edit_ip4(good4(), |ip| ip[3] = 0), Ipv4LengthInvalid),
        ("IPv4 checksum", edit(good4(), |f| f[24] ^= 1), Ipv4ChecksumInvalid),
        ("no IPv6 header", good6()[..53].to_vec(), Ipv6HeaderInvalid),
        ("IPv6 with version 4", edit(good6(), |f| f[14] = 0x45), Ipv6HeaderInvalid),
        ("mapped destination", between6("fd00::1", "::ffff:10.0.0.2"), Ipv6HeaderInvalid),
        ("payload beyond the frame", edit(good6(), |f| f[19] += 1), Ipv6LengthInvalid),
        ("extension beyond the packet", v6(60, &[17, 9, 0, 0, 0, 0, 0, 0]), Ipv6ExtensionInvalid),
        (
            "hop-by-hop not first",
            v6(60, &[[0u8, 0, 1, 4, 0, 0, 0, 0], [17, 0, 1, 4, 0, 0, 0, 0]].concat()),
            Ipv6ExtensionInvalid,
        ),
        ("from this network", from4([0, 0, 0, 0]), IpSourceInvalid),
        ("from loopback", from4([127, 0, 0, 1]), IpSourceInvalid),
        ("from multicast", from4([224, 0, 0, 1]), IpSourceInvalid),
        ("from broadcast", from4([255, 255, 255, 255]), IpSourceInvalid),
        ("from unspecified v6", between6("::", "fd00::2"), IpSourceInvalid),
        ("from loopback v6", between6("::1", "fd00::2"), IpSourceInvalid),
        ("from multicast v6", between6("ff02::1", "fd00::2"), IpSourceInvalid),
        ("from mapped", between6("::ffff:10.0.0.1", "fd00::2"), IpSourceInvalid),
        ("solicitation from multicast", nd(solicit(None), all, B6, 255), IpSourceInvalid),
        ("to multicast", to4([224, 0, 0, 251]), MulticastUnsupported),
        ("to broadcast", to4([255, 255, 255, 255]), MulticastUnsupported),
        ("unicast in a broadcast frame", edit(good4(), |f| f[..6].fill(0xff)), MulticastUnsupported),
        ("unicast v6 in a multicast frame", edit(good6(), |f| f[0] = 0x33), MulticastUnsupported),
        ("to multicast v6", between6("fd00::1", "ff02::fb"), MulticastUnsupported),
        ("to a solicited node, not ND", between6("fd00::1", "ff02::1:ff00:2"), MulticastUnsupported),
        ("solicitation to all nodes", nd(solicit(None), A6, all, 255), MulticastUnsupported),
        ("advertisement to all nodes", nd(advert(0), A6, all, 255), MulticastUnsupported),
        ("TTL 0", edit_ip4(good4(), |ip| ip[8] = 0), TtlExceeded),
        ("hop limit 0", edit(good6(), |f| f[21] = 0), TtlExceeded),
        ("first fragment", edit_ip4(good4(), |ip| ip[6] = 0x20), FragmentUnsupported),
        ("last fragment", edit_ip4(good4(), |ip| ip[7] = 1), FragmentUnsupported),
        ("first fragment v6", fragment(1), FragmentUnsupported),
        ("last fragment v6", fragment(8), FragmentUnsupported),
    ];
    for (name, frame, reason) in rows {
        assert_eq!(parse(&frame, &Meta::default()), Err(reason), "{name}");
    }
}

#[test]
fn drops_of_upper_layers() {
    use DropReason::*;
    let tcp = |flags| v4(6, &tcp4(flags, &[], b""));
    let udp_length = |length| v4(17, &edit(udp4(), |u| u[5] = length));
    let quote = quote4(17, &udp4());
    let quote6 = ip6(ipv6::Header::new(A6, B6, 17, 0), &udp6());
    let mapped = ipv6::Header::new(Ipv6Addr::from_bits(ip::map_v4(A4)), B6, 17, 0);
    let later = ipv4::Header { fragment_offset: 1, ..ipv4::Header::new(A4, B4, 17, 0) };
    let first6 =
        ip6(ipv6::Header::new(A6, B6, 44, 0), &[[17u8, 0, 0, 1, 0, 0, 0, 1].to_vec(), udp6()].concat());
    let solicited = ndp::solicited_node(B6);
    let solicitation = || nd(solicit(Some(MAC_A)), A6, solicited, 255);
    let multicast_target = ndp::Message::Solicitation { target: solicited, link_layer: None };
    let mapped_target =
        ndp::Message::Solicitation { target: Ipv6Addr::from_bits(ip::map_v4(B4)), link_layer: None };
    let behind_atomic = [[58, 0, 0, 0, 0, 0, 0, 1].to_vec(), solicitation()[54..].to_vec()].concat();
    let rows = [
        ("19 bytes of TCP", v4(6, &tcp4(flags::ACK, &[], b"")[..19]), TcpHeaderInvalid),
        ("data offset 4", v4(6, &edit(tcp4(flags::ACK, &[], b""), |t| t[12] = 0x40)), TcpHeaderInvalid),
        ("data offset beyond", v4(6, &edit(tcp4(flags::ACK, &[], b""), |t| t[12] = 0x60)), TcpHeaderInvalid),
        ("no flags", tcp(0), TcpFlagsInvalid),
        ("only ECN flags", tcp(flags::ECE | flags::CWR), TcpFlagsInvalid),
        ("SYN and FIN", tcp(flags::SYN | flags::FIN), TcpFlagsInvalid),
        ("SYN and RST", tcp(flags::SYN | flags::RST | flags::ACK), TcpFlagsInvalid),
        ("7 bytes of UDP", v4(17, &udp4()[..7]), UdpLengthInvalid),
        ("UDP length 7", udp_length(7), UdpLengthInvalid),
        ("UDP length 0", udp_length(0), UdpLengthInvalid),
        ("UDP length beyond", udp_length(13), UdpLengthInvalid),
        ("7 bytes of ICMP", v4(1, &icmp4(8, 0, b"")[..7]), IcmpHeaderInvalid),
        ("7 bytes of ICMPv6", v6(58, &icmp6(128, 0, b"")[..7]), IcmpHeaderInvalid),
        ("no byte of ICMPv6", v6(58, &[]), IcmpHeaderInvalid),
        ("error with a bad checksum", edit(error4(3, &quote), |f| f[36] ^= 1), IcmpChecksumInvalid),
        ("v6 error with a bad checksum", edit(error6(1, &quote6), |f| f[56] ^= 1), IcmpChecksumInvalid),
        ("discovery with a bad checksum", edit(solicitation(), |f| f[56] ^= 1), IcmpChecksumInvalid),
        ("redirect", error4(5, &quote), IcmpTypeUnsupported),
        ("source quench", error4(4, &quote), IcmpTypeUnsupported),
        ("timestamp", v4(1, &icmp4(13, 0, &[0; 12])), IcmpTypeUnsupported),
        ("echo with a code", v4(1, &icmp4(8, 1, b"")), IcmpTypeUnsupported),
        ("echo v6 with a code", v6(58, &icmp6(128, 1, b"")), IcmpTypeUnsupported),
        ("router solicitation", v6(58, &icmp6(133, 0, b"")), IcmpTypeUnsupported),
        ("redirect v6", v6(58, &icmp6(137, 0, &[0; 32])), IcmpTypeUnsupported),
        ("ICMPv6 over IPv4", v4(58, &icmp4(128, 0, b"")), IcmpTypeUnsupported),
        ("ICMP over IPv6", v6(1, &icmp4(8, 0, b"")), IcmpTypeUnsupported),
        ("nothing quoted", error4(3, &[]), IcmpQuoteInvalid),
        ("quote without 8 bytes", error4(3, &quote[..27]), IcmpQuoteInvalid),
        ("quote of a later fragment", error4(3, &ip4(later, &udp4())), IcmpQuoteInvalid),
        ("quote of an error", error4(3, &quote4(1, &icmp4(3, 0, &quote))), IcmpQuoteInvalid),
        ("quote of ICMPv6 in IPv4", error4(3, &quote4(58, &icmp4(128, 0, b""))), IcmpQuoteInvalid),
        ("quote of IPv6 in ICMP", error4(3, &quote6), IcmpQuoteInvalid),
        (
            "quote from another host",
            error4(3, &ip4(ipv4::Header::new(B4, A4, 17, 0), &udp4())),
            IcmpQuoteInvalid,
        ),
        ("v6 quote cut short", error6(1, &quote6[..47]), IcmpQuoteInvalid),
        ("v6 quote of a fragment", error6(1, &first6), IcmpQuoteInvalid),
        (
            "v6 quote of ICMP",
            error6(1, &ip6(ipv6::Header::new(A6, B6, 1, 0), &icmp4(8, 0, b""))),
            IcmpQuoteInvalid,
        ),
        (
            "v6 quote of an error",
            error6(1, &ip6(ipv6::Header::new(A6, B6, 58, 0), &icmp6(1, 0, &quote6))),
            IcmpQuoteInvalid,
        ),
        ("v6 quote with mapped addresses", error6(1, &ip6(mapped, &udp6())), IcmpQuoteInvalid),
        ("ARP cut short", arp(arp::Operation::Request)[..41].to_vec(), ArpInvalid),
        ("ARP for IEEE 802", edit(arp(arp::Operation::Request), |f| f[15] = 6), ArpInvalid),
        ("RARP request", edit(arp(arp::Operation::Request), |f| f[21] = 3), ArpInvalid),
        ("discovery from afar", nd(solicit(None), A6, solicited, 254), NdInvalid),
        ("multicast target", nd(multicast_target, A6, solicited, 255), NdInvalid),
        ("mapped target", nd(mapped_target, A6, solicited, 255), NdInvalid),
        (
            "unspecified with an address",
            nd(solicit(Some(MAC_A)), Ipv6Addr::UNSPECIFIED, solicited, 255),
            NdInvalid,
        ),
        ("discovery with a code", edit(solicitation(), |f| f[55] = 1), NdInvalid),
        ("discovery cut short", v6(58, &icmp6(136, 0, &[0; 15])), NdInvalid),
        ("discovery in a fragment", v6(44, &behind_atomic), NdInvalid),
    ];
    for (name, frame, reason) in rows {
        assert_eq!(parse(&frame, &Meta::default()), Err(reason), "{name}");
    }
}

#[test]
fn super_frames() {
    let tcp = tcp4(flags::ACK | flags::PSH, &[1; 12], &[7; 20_000]);
    let headers = parse(&v4(6, &tcp), &gso()).unwrap();
    assert_eq!((headers.l3_len, headers.payload), (20_052, 66));
    let zero = edit_ip4(v4(6, &tcp), |ip| ip[2..4].fill(0));
    assert_eq!(parse(&zero, &gso()), Ok(headers));
    assert_eq!(parse(&zero, &Meta::default()), Err(DropReason::Ipv4LengthInvalid));

    let datagrams = udp(A6.into(), B6.into(), &[7; 20_000]);
    let meta = Meta { gso: GsoType::UdpL4, ..gso() };
    let headers = parse(&v6(17, &datagrams), &meta).unwrap();
    assert_eq!((headers.class, headers.l3_len, headers.payload), (Class::Udp, 20_048, 62));
    let zero = edit(v6(17, &datagrams), |f| (f[18], f[19], f[58], f[59]) = (0, 0, 0, 0));
    assert_eq!(parse(&zero, &meta), Ok(headers));
}

#[test]
fn a_partial_checksum_is_not_held_against_the_bytes() {
    let bad = edit(error4(3, &quote4(17, &udp4())), |f| f[36] ^= 1);
    for (csum, intact) in [
        (Checksum::None, false),
        (Checksum::Verified, false),
        (Checksum::Partial { start: 34, offset: 2 }, true),
    ] {
        assert_eq!(parse(&bad, &Meta { csum, ..Meta::default() }).is_ok(), intact, "{csum:?}");
    }
}

fn any_meta() -> impl Strategy<Value = Meta> {
    (any::<bool>(), any::<bool>()).prop_map(|(large, partial)| Meta {
        csum: if partial { Checksum::Partial { start: 34, offset: 2 } } else { Checksum::None },
        ..if large { gso() } else { Meta::default() }
    })
}

/// What holds for every parsed frame.
fn check(frame: &[u8], meta: &Meta) -> Result<(), TestCaseError> {
    if let Ok(headers) = parse(frame, meta) {
        let end = usize::from(headers.l3) + headers.l3_len as usize;
        prop_assert!(end <= frame.len());
        prop_assert!(headers.l3 <= headers.l4 && headers.l4 <= headers.payload);
        prop_assert!(usize::from(headers.payload) <= end);
        prop_assert!(headers.link_layer_offset().is_none_or(|at| at + 6 <= end));
        prop_assert!(headers.arp_target_offset().is_none_or(|at| at + 6 <= end));
        // What lies behind the packet does not count.
        prop_assert_eq!(parse(&frame[..end], meta), Ok(headers));
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), ethertype in 0usize..4, meta in any_meta()) {
        let mut frame = bytes;
        if frame.len() >= 14 {
            let ethertype = [ethertype::IPV4, ethertype::IPV6, ethertype::ARP, ethertype::VLAN][ethertype];
            frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
        }
        check(&frame, &meta)?;
    }

    #[test]
    fn no_damaged_frame_panics(
        which in 0usize..10,
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<proptest::sample::Index>(), whole: bool, meta in any_meta(),
    ) {
        let solicited = ndp::solicited_node(B6);
        let mut frame = match which {
            0 => v4(6, &tcp4(flags::SYN, &[2, 4, 5, 0xb4, 1, 3, 3, 9], b"")),
            1 => v4(17, &udp4()),
            2 => v4(1, &icmp4(8, 0, b"ping")),
            3 => error4(3, &quote4(17, &udp4())),
            4 => error6(1, &ip6(ipv6::Header::new(A6, B6, 17, 0), &udp6())),
            5 => v6(0, &[[17, 0, 1, 4, 0, 0, 0, 0].to_vec(), udp6()].concat()),
            6 => v6(44, &[[17, 0, 0, 0, 0, 0, 0, 1].to_vec(), udp6()].concat()),
            7 => nd(solicit(Some(MAC_A)), A6, solicited, 255),
            8 => nd(advert(0), A6, B6, 255),
            _ => arp(arp::Operation::Request),
        };
        for (at, value) in flips {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        if !whole {
            frame.truncate(cut.index(frame.len() + 1));
        }
        // The header checksum would hide most of what lies behind it.
        if frame.len() >= 34 && frame[12..14] == [8, 0] && frame[L3] == 0x45 {
            frame = edit_ip4(frame, |_| ());
        }
        check(&frame, &meta)?;
    }
}
