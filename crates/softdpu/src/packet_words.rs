//! A packet given in words or in hex, made into a frame.
//!
//! ```text
//! tcp 10.0.0.1:4000 > 10.0.0.2:80 syn
//! udp [fd00::1]:5000 > [fd00::2]:53
//! icmp 10.0.0.1 > 10.0.0.2
//! 0200...                              (the frame's bytes, from the Ethernet header on)
//! ```

use crate::failure::{Failure, Result};
use std::net::{IpAddr, SocketAddr};
use wire::ethernet::{self, MacAddr, ethertype};
use wire::ip::protocol;
use wire::tcp::flags;
use wire::{icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

const WORDS: &str = "a packet is `tcp|udp SRC:PORT > DST:PORT [syn|ack|fin|rst ...]`, `icmp SRC > DST`, or the frame's bytes in hex";

/// The frame for a packet that a port's ENI with this MAC address sends.
pub fn frame(words: &[String], source_mac: [u8; 6]) -> Result<Vec<u8>> {
    let text = words.join(" ");
    let joined: String = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    if joined.len() >= 28 && joined.chars().all(|c| c.is_ascii_hexdigit()) {
        return hex(&joined);
    }
    let tokens: Vec<&str> = text.split_whitespace().collect();
    let [protocol, source, ">", destination, rest @ ..] = tokens.as_slice() else {
        return Err(Failure::usage(format!("\"{text}\": {WORDS}")));
    };
    let (src, sport) = end(source)?;
    let (dst, dport) = end(destination)?;
    if src.is_ipv4() != dst.is_ipv4() {
        return Err(Failure::usage(format!("{src} and {dst} are of two IP versions")));
    }
    let mut buffer = [0; 128];
    let written = build(&mut buffer, source_mac, protocol, (src, sport), (dst, dport), rest)?;
    Ok(buffer[..written].to_vec())
}

fn hex(digits: &str) -> Result<Vec<u8>> {
    if !digits.len().is_multiple_of(2) {
        return Err(Failure::usage("the frame in hex has an odd number of digits"));
    }
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).map_err(Failure::usage);
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn end(text: &str) -> Result<(IpAddr, u16)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok((address.ip(), address.port()));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse().map(|ip| (ip, 0)).map_err(|_| {
        Failure::usage(format!(
            "\"{text}\" is no address: write 10.0.0.1, 10.0.0.1:80, fd00::1 or [fd00::1]:80"
        ))
    })
}

fn tcp_flags(words: &[&str]) -> Result<u8> {
    let flag = |word: &&str| match *word {
        "syn" => Ok(flags::SYN),
        "ack" => Ok(flags::ACK),
        "fin" => Ok(flags::FIN),
        "rst" => Ok(flags::RST),
        "psh" => Ok(flags::PSH),
        other => Err(Failure::usage(format!("\"{other}\" is no TCP flag: syn, ack, fin, rst, psh"))),
    };
    match words {
        [] => Ok(flags::SYN),
        words => words.iter().try_fold(0, |bits, word| Ok(bits | flag(word)?)),
    }
}

fn build(
    buffer: &mut [u8],
    source_mac: [u8; 6],
    protocol: &str,
    (src, sport): (IpAddr, u16),
    (dst, dport): (IpAddr, u16),
    rest: &[&str],
) -> Result<usize> {
    let header = if src.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    let (ethernet, packet) = buffer.split_at_mut(ethernet::HEADER_LEN);
    let (network, transport) = packet.split_at_mut(header);
    let (number, length) = match (protocol, src, dst) {
        ("tcp", ..) => {
            let flags = tcp_flags(rest)?;
            let header =
                tcp::Header { src_port: sport, dst_port: dport, flags, window: 65535, ..Default::default() };
            (protocol::TCP, header.emit(transport, src, dst, b""))
        }
        ("udp", ..) => {
            (protocol::UDP, udp::Header { src_port: sport, dst_port: dport }.emit(transport, src, dst, b""))
        }
        ("icmp", IpAddr::V4(_), _) => {
            (protocol::ICMP, icmpv4::Header::echo(icmpv4::kind::ECHO_REQUEST, 1, 1).emit(transport, b""))
        }
        ("icmp" | "icmpv6", IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = icmpv6::Header::echo(icmpv6::kind::ECHO_REQUEST, 1, 1);
            (protocol::ICMPV6, header.emit(transport, src, dst, b""))
        }
        _ => return Err(Failure::usage(format!("protocol \"{protocol}\" is not known here: {WORDS}"))),
    };
    let length = length.map_err(Failure::new)?;
    let ethertype = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            ipv4::Header::new(src, dst, number, length).emit(network).map_err(Failure::new)?;
            ethertype::IPV4
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            ipv6::Header::new(src, dst, number, length).emit(network).map_err(Failure::new)?;
            ethertype::IPV6
        }
        _ => return Err(Failure::usage(format!("{src} and {dst} are of two IP versions"))),
    };
    let link = ethernet::Header { dst: MacAddr([2, 0, 0, 0, 0, 1]), src: MacAddr(source_mac), ethertype };
    link.emit(ethernet).map_err(Failure::new)?;
    Ok(ethernet::HEADER_LEN + header + length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Meta;
    use pipeline::parse::parse;

    #[test]
    fn words_become_the_packet_that_they_say() {
        let rows = [
            ("tcp 10.0.0.1:4000 > 10.0.0.2:80", "tcp 10.0.0.1:4000 > 10.0.0.2:80"),
            ("udp [fd00::1]:5 > [fd00::2]:53", "udp [fd00::1]:5 > [fd00::2]:53"),
            ("icmp 10.0.0.1 > 10.0.0.2", "icmp echo-request 10.0.0.1 > 10.0.0.2 id 1"),
            ("icmp fd00::1 > fd00::2", "icmpv6 echo-request fd00::1 > fd00::2 id 1"),
        ];
        for (words, key) in rows {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let frame = frame(&words, [2, 0, 0, 0, 0, 9]).unwrap();
            assert_eq!(parse(&frame, &Meta::default()).unwrap().key.to_string(), key);
            let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(super::frame(&[hex], [0; 6]).unwrap(), frame, "and its bytes say the same");
        }
    }

    #[test]
    fn what_is_no_packet_is_refused_with_what_would_be_one() {
        for bad in [
            "",
            "tcp",
            "tcp a > b",
            "tcp 10.0.0.1 > fd00::1",
            "foo 10.0.0.1 > 10.0.0.2",
            "tcp 10.0.0.1:1 > 10.0.0.2:2 foo",
        ] {
            let words: Vec<String> = bad.split(' ').map(str::to_owned).collect();
            assert_eq!(frame(&words, [0; 6]).unwrap_err().status, 2, "{bad}");
        }
    }
}
