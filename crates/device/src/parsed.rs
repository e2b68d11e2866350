//! From a frame to a flow key: the first pass, the same for workers and the host path.

use crate::program::View;
use functions::eni::Eni;
use packet::{DropReason, Frame};
use pipeline::key::FlowKey;
use pipeline::parse::{Class, Headers, parse};

/// What a frame is to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A packet of a conversation.
    Flow,
    /// An ICMP error about a packet of a conversation; the key is that of the conversation, in the direction in which the error goes.
    Error,
    /// ARP or neighbour discovery.
    Neighbor,
}

/// A parsed frame.
#[derive(Clone, Copy)]
pub struct Parsed {
    /// Its headers.
    pub headers: Headers,
    /// The key to look up.
    pub key: FlowKey,
    /// What it is.
    pub kind: Kind,
}

/// Parses a frame and writes the offsets and the ENI into its metadata.
#[inline]
pub fn look(frame: &mut Frame, full: &View) -> Result<Parsed, DropReason> {
    let headers = parse(frame.data(), frame.meta())?;
    let meta = frame.meta_mut();
    meta.l3 = headers.l3;
    meta.l4 = headers.l4;
    meta.payload = headers.payload;
    let eni = sender(frame.data(), frame.meta().port, full)?;
    frame.meta_mut().eni = eni.eni;
    identify(&headers, eni, frame.data())
}

/// The ENI that sent a frame. Which ENI lives on a port is part of the port's configuration, known whatever the
/// device's tables hold.
#[inline]
pub fn sender<'v>(frame: &[u8], port: u16, full: &'v View) -> Result<&'v Eni, DropReason> {
    let eni = full.enis.eni(port).ok_or(DropReason::NoEni)?;
    if eni.anti_spoof && frame[6..12] != eni.mac {
        return Err(DropReason::SpoofedMac);
    }
    Ok(eni)
}

/// The key and kind of a frame that this ENI sent.
#[inline]
pub fn identify(headers: &Headers, eni: &Eni, frame: &[u8]) -> Result<Parsed, DropReason> {
    let (key, kind) = match headers.class {
        Class::ArpRequest | Class::ArpReply | Class::NeighborSolicitation | Class::NeighborAdvertisement => {
            (headers.key, Kind::Neighbor)
        }
        Class::IcmpError => {
            // The quoted packet was sent to us by the peer: it must be the one that gets the error (RFC 1122, 3.2.2).
            let (_, destination) = addresses(frame, headers);
            if destination != headers.key.src() {
                return Err(DropReason::IcmpQuoteInvalid);
            }
            (headers.key.reversed(eni.eni), Kind::Error)
        }
        _ => (headers.key.with_eni(eni.eni), Kind::Flow),
    };
    Ok(Parsed { headers: *headers, key, kind })
}

/// Source and destination of the outer IP header, IPv4 as IPv4-mapped.
pub fn addresses(frame: &[u8], headers: &Headers) -> (u128, u128) {
    let l3 = headers.l3 as usize;
    let v4 = |at: usize| {
        let b: [u8; 4] = frame[l3 + at..l3 + at + 4].try_into().expect("four bytes");
        0xffff_0000_0000 | u128::from(u32::from_be_bytes(b))
    };
    let v6 = |at: usize| u128::from_be_bytes(frame[l3 + at..l3 + at + 16].try_into().expect("sixteen bytes"));
    if frame[l3] >> 4 == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

/// The size that counts against an MTU: the IP packet, or the largest segment of a super-frame.
#[inline]
pub fn ip_size(frame: &Frame, headers: &Headers) -> u32 {
    let meta = frame.meta();
    if meta.is_gso() {
        u32::from(headers.payload - headers.l3) + u32::from(meta.gso_size)
    } else {
        headers.l3_len
    }
}
