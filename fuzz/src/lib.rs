//! What the fuzz targets share: how an input becomes a frame, and what holds for every frame that parses.
#![forbid(unsafe_code)]

use packet::{Checksum, GsoType, Meta};
use pipeline::parse::{Class, parse};
use wire::{checksum, ethernet, icmpv4, icmpv6, ip, ipv4, ipv6};

/// In the first byte of an input for [`frame`]: a super-frame.
pub const GSO: u8 = 1;
/// In the first byte: the checksum is partial.
pub const PARTIAL: u8 = 2;
/// In the first byte: the IPv4 header checksum is corrected, so that the fuzzer gets past it.
pub const CORRECT: u8 = 4;

/// An input of the target `parse`: one byte of [`GSO`], [`PARTIAL`] and [`CORRECT`], and a frame.
pub fn frame(input: &[u8]) -> Option<(Vec<u8>, Meta)> {
    let (&how, bytes) = input.split_first()?;
    let mut frame = bytes.to_vec();
    let mut meta = Meta::default();
    if how & GSO != 0 {
        (meta.gso, meta.gso_size) = (GsoType::TcpV4, 1448);
    }
    if how & PARTIAL != 0 {
        meta.csum = Checksum::Partial { start: 34, offset: 16 };
    }
    if how & CORRECT != 0 {
        correct_ipv4(&mut frame);
    }
    Some((frame, meta))
}

fn correct_ipv4(frame: &mut [u8]) {
    let Some(ip) = frame.get_mut(ethernet::HEADER_LEN..) else { return };
    let length = ip.first().map_or(0, |first| usize::from(first & 15) * 4);
    if let Some(header) = ip.get_mut(..length).filter(|header| header.len() >= ipv4::HEADER_LEN) {
        header[ipv4::field::CHECKSUM].fill(0);
        let checksum = checksum::checksum(header);
        header[ipv4::field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Parses, and holds what comes out against the frame. Returns the class of a frame that parsed.
pub fn check(frame: &[u8], meta: &Meta) -> Option<Class> {
    let headers = parse(frame, meta).ok()?;
    let end = usize::from(headers.l3) + headers.l3_len as usize;
    assert!(end <= frame.len());
    assert!(headers.l3 <= headers.l4 && headers.l4 <= headers.payload);
    assert!(usize::from(headers.payload) <= end);
    assert!(headers.link_layer_offset().is_none_or(|at| at + 6 <= end));
    assert!(headers.arp_target_offset().is_none_or(|at| at + 6 <= end));
    assert_eq!(parse(&frame[..end], meta), Ok(headers), "what lies behind the packet does not count");
    let back = headers.key.reversed(0);
    assert_eq!(back.reversed(0), headers.key);
    assert_eq!(back.hash(1), headers.key.hash(1));
    Some(headers.class)
}

/// A sound ICMP error, of the IP version that the quote claims, to the quoted packet's source.
pub fn error_with_quote(quote: &[u8]) -> Option<Vec<u8>> {
    let mut frame = vec![0; 14 + 40 + 8 + quote.len()];
    let [dst, src] = [ethernet::MacAddr([2, 0, 0, 0, 0, 2]), ethernet::MacAddr([2, 0, 0, 0, 0, 1])];
    let six = quote.first()? >> 4 == 6;
    let ethertype = if six { ethernet::ethertype::IPV6 } else { ethernet::ethertype::IPV4 };
    let l3 = ethernet::Header { dst, src, ethertype }.emit(&mut frame).ok()?;
    let (body, rest) = (icmpv4::HEADER_LEN + quote.len(), [0; 4]);
    let end = if six {
        let router = "fd00::fe".parse().ok()?;
        let host = <[u8; 16]>::try_from(quote.get(ipv6::field::SRC)?).ok()?.into();
        let header = ipv6::Header::new(router, host, ip::protocol::ICMPV6, body);
        let l4 = l3 + header.emit(&mut frame[l3..]).ok()?;
        let error = icmpv6::Header { kind: icmpv6::kind::TIME_EXCEEDED, code: 0, rest };
        l4 + error.emit(&mut frame[l4..], router, host, quote).ok()?
    } else {
        let host = <[u8; 4]>::try_from(quote.get(ipv4::field::SRC)?).ok()?.into();
        let header = ipv4::Header::new([10, 0, 0, 254].into(), host, ip::protocol::ICMP, body);
        let l4 = l3 + header.emit(&mut frame[l3..]).ok()?;
        let error = icmpv4::Header { kind: icmpv4::kind::TIME_EXCEEDED, code: 0, rest };
        l4 + error.emit(&mut frame[l4..], quote).ok()?
    };
    frame.truncate(end);
    Some(frame)
}
