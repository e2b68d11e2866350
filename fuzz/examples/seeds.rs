//! Writes `corpus/`: seeds from the project's own builders, each checked to be what its name says.

use contract::codec::{self, Request, Response};
use contract::{Command, CommandId, Completion, Generation, Reply, Session, Version};
use core::net::{Ipv4Addr, Ipv6Addr};
use packet::Meta;
use pipeline::parse::Class;
use softdpu_fuzz::{CORRECT, GSO, PARTIAL, check, error_with_quote, frame};
use std::path::Path;
use wire::ethernet::{self, MacAddr, ethertype};
use wire::ip::protocol;
use wire::tcp::flags;
use wire::{arp, icmpv4, icmpv6, ipv4, ipv6, ndp, tcp, udp, virtio_net};

type Error = Box<dyn std::error::Error>;

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC_B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const A4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// What `emit` leaves in a buffer of its own.
fn made(emit: impl FnOnce(&mut [u8]) -> Result<usize, wire::WireError>) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; 4096];
    let length = emit(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

fn in_frame(ethertype: u16, payload: &[u8]) -> Result<Vec<u8>, Error> {
    let mut frame = made(|b| ethernet::Header { dst: MAC_B, src: MAC_A, ethertype }.emit(b))?;
    frame.extend(payload);
    Ok(frame)
}

fn ip4(protocol: u8, payload: &[u8], options: &[u8]) -> Result<Vec<u8>, Error> {
    let header = ipv4::Header { options, ..ipv4::Header::new(A4, B4, protocol, payload.len()) };
    Ok([made(|b| header.emit(b))?, payload.to_vec()].concat())
}

fn ip6(next: u8, payload: &[u8]) -> Result<Vec<u8>, Error> {
    Ok([made(|b| ipv6::Header::new(A6, B6, next, payload.len()).emit(b))?, payload.to_vec()].concat())
}

fn discovery(message: ndp::Message, dst: Ipv6Addr) -> Result<Vec<u8>, Error> {
    let body = made(|b| message.emit(b, A6, dst))?;
    let header = ipv6::Header {
        hop_limit: ndp::HOP_LIMIT,
        ..ipv6::Header::new(A6, dst, protocol::ICMPV6, body.len())
    };
    Ok([made(|b| header.emit(b))?, body].concat())
}

fn main() -> Result<(), Error> {
    let mut seeds: Vec<(&str, &str, Vec<u8>)> = Vec::new();

    let udp4 = made(|b| udp::Header { src_port: 5000, dst_port: 53 }.emit(b, A4.into(), B4.into(), b"data"))?;
    let udp6 = made(|b| udp::Header { src_port: 5000, dst_port: 53 }.emit(b, A6.into(), B6.into(), b"data"))?;
    let segment = |flags, options| {
        let header = tcp::Header {
            src_port: 5000,
            dst_port: 80,
            seq: 1,
            flags,
            window: 65_535,
            options,
            ..Default::default()
        };
        made(|b| header.emit(b, A4.into(), B4.into(), b""))
    };
    let syn = segment(flags::SYN, &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7])?;
    let ack = segment(flags::ACK, &[])?;
    let echo4 = |kind| made(|b| icmpv4::Header::echo(kind, 7, 1).emit(b, b"ping"));
    let echo6 = |kind| made(|b| icmpv6::Header::echo(kind, 7, 1).emit(b, A6, B6, b"ping"));
    let behind = |header: &[u8]| [header, &udp6].concat();
    let options = behind(&[protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
    let atomic = behind(&[protocol::UDP, 0, 0, 0, 0, 0, 0, 1]);
    let fragment = behind(&[protocol::UDP, 0, 0, 1, 0, 0, 0, 1]);
    let routing = behind(&[protocol::UDP, 0, 4, 0, 0, 0, 0, 0]);
    let ah = behind(&[protocol::UDP, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    let solicitation = ndp::Message::Solicitation { target: B6, link_layer: Some(MAC_A) };
    let advertisement =
        ndp::Message::Advertisement { flags: ndp::flags::SOLICITED, target: A6, link_layer: Some(MAC_A) };
    let arp = |operation| {
        let packet = arp::Packet {
            operation,
            sender_mac: MAC_A,
            sender_ip: A4,
            target_mac: MacAddr::ZERO,
            target_ip: B4,
        };
        made(|b| packet.emit(b))
    };

    let quotes = [
        ("udp", ip4(protocol::UDP, &udp4, &[])?),
        ("tcp_8_bytes", ip4(protocol::TCP, &ack, &[])?[..28].to_vec()),
        ("echo", ip4(protocol::ICMP, &echo4(8)?, &[])?),
        ("gre_with_options", ip4(protocol::GRE, &[], &[1; 4])?),
        ("udp_v6", ip6(protocol::UDP, &udp6)?),
        ("options_v6", ip6(protocol::HOP_BY_HOP, &options)?),
        ("echo_v6", ip6(protocol::ICMPV6, &echo6(128)?)?),
    ];
    for (name, quote) in &quotes {
        let error = error_with_quote(quote).ok_or("no error made")?;
        assert_eq!(check(&error, &Meta::default()), Some(Class::IcmpError), "{name}");
        seeds.push(("icmp_quote", name, quote.clone()));
    }

    let (v4, v6) = (ethertype::IPV4, ethertype::IPV6);
    let frames = [
        ("tcp_syn", 0, in_frame(v4, &ip4(protocol::TCP, &syn, &[])?)?, Some(Class::Tcp)),
        ("tcp_super_frame", GSO | PARTIAL, in_frame(v4, &ip4(protocol::TCP, &ack, &[])?)?, Some(Class::Tcp)),
        ("udp", CORRECT, in_frame(v4, &ip4(protocol::UDP, &udp4, &[])?)?, Some(Class::Udp)),
        ("udp_ip_options", CORRECT, in_frame(v4, &ip4(protocol::UDP, &udp4, &[1; 8])?)?, Some(Class::Udp)),
        (
            "echo_request",
            CORRECT,
            in_frame(v4, &ip4(protocol::ICMP, &echo4(8)?, &[])?)?,
            Some(Class::EchoRequest),
        ),
        (
            "echo_reply",
            CORRECT,
            in_frame(v4, &ip4(protocol::ICMP, &echo4(0)?, &[])?)?,
            Some(Class::EchoReply),
        ),
        (
            "icmp_error",
            CORRECT,
            error_with_quote(&quotes[0].1).ok_or("no error made")?,
            Some(Class::IcmpError),
        ),
        ("gre", CORRECT, in_frame(v4, &ip4(protocol::GRE, &[0; 8], &[])?)?, Some(Class::Other)),
        ("udp_v6", 0, in_frame(v6, &ip6(protocol::UDP, &udp6)?)?, Some(Class::Udp)),
        ("hop_by_hop", 0, in_frame(v6, &ip6(protocol::HOP_BY_HOP, &options)?)?, Some(Class::Udp)),
        ("atomic_fragment", 0, in_frame(v6, &ip6(protocol::FRAGMENT, &atomic)?)?, Some(Class::Udp)),
        ("fragment", 0, in_frame(v6, &ip6(protocol::FRAGMENT, &fragment)?)?, None),
        (
            "echo_request_v6",
            0,
            in_frame(v6, &ip6(protocol::ICMPV6, &echo6(128)?)?)?,
            Some(Class::EchoRequest),
        ),
        ("icmp_error_v6", 0, error_with_quote(&quotes[4].1).ok_or("no error made")?, Some(Class::IcmpError)),
        (
            "solicitation",
            PARTIAL,
            in_frame(v6, &discovery(solicitation, ndp::solicited_node(B6))?)?,
            Some(Class::NeighborSolicitation),
        ),
        (
            "advertisement",
            PARTIAL,
            in_frame(v6, &discovery(advertisement, B6)?)?,
            Some(Class::NeighborAdvertisement),
        ),
        (
            "arp_request",
            0,
            in_frame(ethertype::ARP, &arp(arp::Operation::Request)?)?,
            Some(Class::ArpRequest),
        ),
        ("arp_reply", 0, in_frame(ethertype::ARP, &arp(arp::Operation::Reply)?)?, Some(Class::ArpReply)),
        ("vlan", 0, in_frame(ethertype::VLAN, &[0, 1, 8, 0])?, None),
    ];
    for (name, how, bytes, class) in frames {
        let input = [&[how], &bytes[..]].concat();
        let (bytes, meta) = frame(&input).ok_or("empty input")?;
        assert_eq!(check(&bytes, &meta), class, "{name}");
        seeds.push(("parse", name, input));
    }

    seeds.extend([
        ("ethernet", "frame", in_frame(v4, b"payload")?),
        ("ethernet", "mac_text", b"02:00:5e:00:fa:01".to_vec()),
        ("arp", "request", arp(arp::Operation::Request)?),
        ("arp", "reply", arp(arp::Operation::Reply)?),
        ("ipv4", "udp", ip4(protocol::UDP, &udp4, &[])?),
        ("ipv4", "options", ip4(protocol::UDP, &udp4, &[1; 40])?),
        ("ipv6", "udp", ip6(protocol::UDP, &udp6)?),
        ("ipv6", "hop_by_hop", ip6(protocol::HOP_BY_HOP, &options)?),
        ("ipv6", "destination_options", ip6(protocol::DESTINATION_OPTIONS, &options)?),
        ("ipv6", "routing", ip6(protocol::ROUTING, &routing)?),
        ("ipv6", "ah", ip6(protocol::AH, &ah)?),
        ("ipv6", "atomic_fragment", ip6(protocol::FRAGMENT, &atomic)?),
        ("ipv6", "fragment", ip6(protocol::FRAGMENT, &fragment)?),
        ("tcp", "syn", syn),
        ("tcp", "ack", ack),
        ("udp", "datagram", udp4),
        ("udp", "super_frame", [0x13, 0x88, 0, 53, 0, 0, 0, 0, 1, 2, 3, 4].to_vec()),
        ("icmpv4", "echo_request", echo4(8)?),
        (
            "icmpv4",
            "time_exceeded",
            made(|b| icmpv4::Header { kind: 11, code: 0, rest: [0; 4] }.emit(b, &quotes[0].1))?,
        ),
        ("icmpv6", "echo_request", [&A6.octets()[..], &B6.octets(), &echo6(128)?].concat()),
        ("ndp", "solicitation", made(|b| solicitation.emit(b, A6, ndp::solicited_node(B6)))?),
        ("ndp", "advertisement", made(|b| advertisement.emit(b, A6, B6))?),
        (
            "ndp",
            "two_options",
            [&made(|b| solicitation.emit(b, A6, B6))?[..], &[14, 1, 1, 2, 3, 4, 5, 6]].concat(),
        ),
        (
            "virtio_net",
            "tcp_super_frame",
            made(|b| {
                let (flags, gso_type) = (virtio_net::NEEDS_CSUM, virtio_net::GSO_TCPV4 | virtio_net::GSO_ECN);
                virtio_net::Header {
                    flags,
                    gso_type,
                    hdr_len: 66,
                    gso_size: 1448,
                    csum_start: 34,
                    csum_offset: 16,
                }
                .emit_merged(b, 1)
            })?,
        ),
    ]);

    let hello =
        Request { id: CommandId(1), session: Session(7), command: Command::Hello { session: Session(7) } };
    let commit =
        Request { id: CommandId(2), session: Session(7), command: Command::Commit { version: Version(3) } };
    let probe = Command::Probe { port: 1, frame: in_frame(v4, b"payload")? };
    let probe = Request { id: CommandId(3), session: Session(7), command: probe };
    let mut stream = vec![0];
    for request in [hello, commit, probe] {
        codec::encode(&request, &mut stream);
    }
    let completion = Completion { id: CommandId(1), generation: Generation(1), outcome: Ok(Reply::Done) };
    let mut answer = vec![1];
    codec::encode(&Response::Completion(completion), &mut answer);
    seeds.extend([("codec", "requests", stream), ("codec", "completion", answer)]);

    for (name, text) in model::Profile::BUILT_IN {
        seeds.push(("config", name, text.into()));
    }
    let base = include_str!("../../crates/model/tests/data/base.toml");
    model::Config::parse(base, "base.toml").map_err(|errors| format!("{errors:?}"))?;
    seeds.push(("config", "base", base.into()));

    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, name, bytes) in &seeds {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)?;
    }
    println!("{} seeds in {}", seeds.len(), corpus.display());
    Ok(())
}
