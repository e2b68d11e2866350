//! What is asked, and the frame that answers it.

use packet::{Checksum, Frame, GsoType, Meta};
use pipeline::parse::{Class, Headers};
use wire::ethernet::{self, MacAddr, ethertype};
use wire::ip::{self, protocol};
use wire::{arp, ipv6, ndp};

/// A question for a link-layer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The protocol address of who asks.
    pub sender_ip: u128,
    /// Its MAC address: what the message says, or where it says nothing, the frame's source.
    pub sender_mac: [u8; 6],
    /// The protocol address that is asked for.
    pub target: u128,
}

/// What a parsed frame asks of us. Nothing: replies and advertisements, duplicate address detection (RFC 5227, 1.1; RFC 4862,
/// 5.4.2), announcements (RFC 5227, 3), and whatever is neither ARP nor neighbour discovery.
pub fn asks(frame: &Frame, headers: &Headers) -> Option<Asked> {
    let (sender_ip, target) = (headers.key.src(), headers.key.dst());
    let probe = match headers.class {
        Class::ArpRequest => sender_ip == ip::V4_MAPPED,
        Class::NeighborSolicitation => sender_ip == 0,
        _ => return None,
    };
    if probe || sender_ip == target {
        return None;
    }
    let at = headers.link_layer_offset().unwrap_or(ethernet::field::SRC.start);
    let &sender_mac = frame.data().get(at..)?.first_chunk()?;
    Some(Asked { sender_ip, sender_mac, target })
}

/// Turns an ARP request into the reply that its target is at `mac`. False: it asks nothing, and is left as it was.
pub fn answer_arp(frame: &mut Frame, headers: &Headers, mac: [u8; 6]) -> bool {
    headers.class == Class::ArpRequest && answer(frame, headers, mac)
}

/// Turns a neighbour solicitation into the advertisement that its target is at `mac`, solicited and to override what is cached
/// (RFC 4861, 7.2.4). False: it asks nothing, and is left as it was.
pub fn answer_ns(frame: &mut Frame, headers: &Headers, mac: [u8; 6]) -> bool {
    headers.class == Class::NeighborSolicitation && answer(frame, headers, mac)
}

/// The answer of either kind. False: the frame asks nothing, and is left as it was.
pub fn answer(frame: &mut Frame, headers: &Headers, mac: [u8; 6]) -> bool {
    let Some(asked) = asks(frame, headers) else {
        return false;
    };
    let mut reply = [0; REPLY_LEN];
    let Some(len) = write(&asked, MacAddr(mac), &mut reply) else {
        return false;
    };
    frame.set_len(len);
    frame.data_mut().copy_from_slice(&reply[..len]);
    // The offsets were the question's, and the checksum is whole.
    *frame.meta_mut() = Meta {
        l3: 0,
        l4: 0,
        payload: 0,
        gso: GsoType::None,
        gso_size: 0,
        gso_ecn: false,
        hdr_len: 0,
        csum: Checksum::None,
        ..*frame.meta()
    };
    true
}

/// Bytes of an advertisement with the target's MAC address, the longer of the two kinds.
const REPLY_LEN: usize =
    ethernet::HEADER_LEN + ipv6::HEADER_LEN + ndp::MESSAGE_LEN + ndp::LINK_LAYER_OPTION_LEN;

/// Writes the answer's frame and returns its length.
fn write(asked: &Asked, mac: MacAddr, buffer: &mut [u8; REPLY_LEN]) -> Option<usize> {
    use core::net::IpAddr::{V4, V6};
    let to = MacAddr(asked.sender_mac);
    let (head, body) = buffer.split_at_mut(ethernet::HEADER_LEN);
    let (ethertype, len) = match (ip::from_bits(asked.target), ip::from_bits(asked.sender_ip)) {
        (V4(target), V4(sender)) => {
            let reply = arp::Packet {
                operation: arp::Operation::Reply,
                sender_mac: mac,
                sender_ip: target,
                target_mac: to,
                target_ip: sender,
            };
            (ethertype::ARP, reply.emit(body).ok()?)
        }
        (V6(target), V6(sender)) => {
            let flags = ndp::flags::SOLICITED | ndp::flags::OVERRIDE;
            let reply = ndp::Message::Advertisement { flags, target, link_layer: Some(mac) };
            let (network, message) = body.split_at_mut(ipv6::HEADER_LEN);
            let message_len = reply.emit(message, target, sender).ok()?;
            let header = ipv6::Header {
                hop_limit: ndp::HOP_LIMIT,
                ..ipv6::Header::new(target, sender, protocol::ICMPV6, message_len)
            };
            (ethertype::IPV6, header.emit(network).ok()? + message_len)
        }
        _ => return None,
    };
    let header = ethernet::Header { dst: to, src: mac, ethertype };
    Some(header.emit(head).ok()? + len)
}
