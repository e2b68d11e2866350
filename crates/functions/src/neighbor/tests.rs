use super::*;
use packet::{Checksum, Frame, GsoType, Meta, Pool};
use pipeline::parse::{Class, parse};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::ethernet::{self, MacAddr, ethertype};
use wire::ip::protocol;
use wire::{arp, ipv6, ndp};

const ASKER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OWNER: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet_frame(dst: MacAddr, ethertype: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_LEN];
    ethernet::Header { dst, src: ASKER, ethertype }.emit(&mut bytes).unwrap();
    bytes.extend(body);
    bytes
}

fn arp_frame(operation: arp::Operation, sender: &str, target: &str) -> Vec<u8> {
    let packet = arp::Packet {
        operation,
        sender_mac: ASKER,
        sender_ip: sender.parse().unwrap(),
        target_mac: MacAddr::ZERO,
        target_ip: target.parse().unwrap(),
    };
    let mut body = [0; arp::PACKET_LEN];
    packet.emit(&mut body).unwrap();
    let mut frame = ethernet_frame(MacAddr::BROADCAST, ethertype::ARP, &body);
    frame.resize(60, 0);
    frame
}

/// A solicitation to the target's solicited-node address; an advertisement to all nodes.
fn nd_frame(src: &str, message: ndp::Message, extension: &[u8]) -> Vec<u8> {
    let src: Ipv6Addr = src.parse().unwrap();
    let dst = match message {
        ndp::Message::Solicitation { target, .. } => ndp::solicited_node(target),
        ndp::Message::Advertisement { .. } => "fd00::9".parse().unwrap(),
    };
    let mut icmp = vec![0; message.emit_len()];
    message.emit(&mut icmp, src, dst).unwrap();
    let next = if extension.is_empty() { protocol::ICMPV6 } else { protocol::DESTINATION_OPTIONS };
    let header = ipv6::Header {
        hop_limit: 255,
        traffic_class: 0xc0,
        ..ipv6::Header::new(src, dst, next, extension.len() + icmp.len())
    };
    let mut body = vec![0; ipv6::HEADER_LEN];
    header.emit(&mut body).unwrap();
    body.extend(extension);
    body.extend(icmp);
    let mac = if dst.is_multicast() { ndp::multicast_mac(dst) } else { MacAddr([2, 0, 0, 0, 0, 9]) };
    ethernet_frame(mac, ethertype::IPV6, &body)
}

fn solicitation(src: &str, target: &str, link_layer: Option<MacAddr>) -> Vec<u8> {
    nd_frame(src, ndp::Message::Solicitation { target: target.parse().unwrap(), link_layer }, &[])
}

/// Puts the bytes into a frame, and asks and answers; gives the question and the frame's bytes and metadata afterwards.
fn ask(
    bytes: &[u8],
    meta: Meta,
    answer: fn(&mut Frame, &pipeline::parse::Headers, [u8; 6]) -> bool,
) -> (Option<Asked>, bool, Vec<u8>, Meta) {
    let mut pool = Pool::new(1, 0).unwrap();
    let mut frame = pool.copy_from(bytes).unwrap();
    *frame.meta_mut() = meta;
    let headers = parse(frame.data(), frame.meta()).unwrap();
    let asked = asks(&frame, &headers);
    let answered = answer(&mut frame, &headers, OWNER);
    let after = (asked, answered, frame.data().to_vec(), *frame.meta());
    pool.free(frame);
    after
}

#[test]
fn an_arp_request_becomes_its_reply() {
    let request = arp_frame(arp::Operation::Request, "10.0.0.1", "10.0.0.2");
    let (asked, answered, reply, _) = ask(&request, Meta::default(), answer_arp);
    let ip = |text: &str| wire::ip::map_v4(text.parse().unwrap());
    let expected = Asked { sender_ip: ip("10.0.0.1"), sender_mac: ASKER.0, target: ip("10.0.0.2") };
    assert_eq!((asked, answered), (Some(expected), true));
    #[rustfmt::skip]
    assert_eq!(reply, [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6,
        0, 1, 8, 0, 6, 4, 0, 2,
        2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
    ]);
}

#[test]
fn a_solicitation_becomes_its_advertisement() {
    let options = [protocol::ICMPV6, 0, 1, 4, 0, 0, 0, 0];
    let target = "fd00::2".parse().unwrap();
    let with_options =
        nd_frame("fd00::1", ndp::Message::Solicitation { target, link_layer: Some(ASKER) }, &options);
    let rows = [
        ("with the sender's address", solicitation("fd00::1", "fd00::2", Some(ASKER))),
        (
            "without: the frame's source counts, and the answer is longer",
            solicitation("fd00::1", "fd00::2", None),
        ),
        ("behind an extension header: the answer has none", with_options),
    ];
    for (name, request) in rows {
        let (asked, answered, reply, _) = ask(&request, Meta::default(), answer_ns);
        let ip = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
        let expected = Asked { sender_ip: ip("fd00::1"), sender_mac: ASKER.0, target: ip("fd00::2") };
        assert_eq!((asked, answered), (Some(expected), true), "{name}");
        #[rustfmt::skip]
        let head = [
            2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd,
            0x60, 0, 0, 0, 0, 32, 58, 255,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
            136, 0,
        ];
        #[rustfmt::skip]
        let tail = [
            0x60, 0, 0, 0, // solicited, override
            0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2,
            2, 1, 2, 0, 0, 0, 0, 2, // target link-layer address
        ];
        assert_eq!((reply.len(), &reply[..56], &reply[58..]), (86, &head[..], &tail[..]), "{name}");
        // The parser verifies the checksum and all that RFC 4861 (7.1.2) asks.
        let headers = parse(&reply, &Meta::default()).unwrap();
        assert_eq!(headers.class, Class::NeighborAdvertisement, "{name}");
    }
}

#[test]
fn the_message_names_the_sender_rather_than_the_frame() {
    let mut request = arp_frame(arp::Operation::Request, "10.0.0.1", "10.0.0.2");
    request[11] = 0x77;
    let (asked, ..) = ask(&request, Meta::default(), answer);
    assert_eq!(asked.unwrap().sender_mac, ASKER.0);
    let mut request = solicitation("fd00::1", "fd00::2", Some(ASKER));
    request[11] = 0x77;
    let (asked, ..) = ask(&request, Meta::default(), answer);
    assert_eq!(asked.unwrap().sender_mac, ASKER.0);
}

#[test]
fn what_asks_nothing_is_left_as_it_was() {
    use arp::Operation::{Reply, Request};
    let target = "fd00::2".parse().unwrap();
    let advertisement = ndp::Message::Advertisement { flags: 0x60, target, link_layer: Some(ASKER) };
    let rows = [
        ("ARP reply", arp_frame(Reply, "10.0.0.1", "10.0.0.2")),
        ("ARP probe", arp_frame(Request, "0.0.0.0", "10.0.0.2")),
        ("ARP announcement", arp_frame(Request, "10.0.0.1", "10.0.0.1")),
        ("duplicate address detection", solicitation("::", "fd00::2", None)),
        ("solicitation of the own address", solicitation("fd00::2", "fd00::2", Some(ASKER))),
        ("advertisement", nd_frame("fd00::2", advertisement, &[])),
    ];
    for (name, request) in rows {
        assert_eq!(
            ask(&request, Meta::default(), answer),
            (None, false, request.clone(), Meta::default()),
            "{name}"
        );
    }
}

#[test]
fn each_kind_is_answered_by_its_own() {
    let arp = arp_frame(arp::Operation::Request, "10.0.0.1", "10.0.0.2");
    let ns = solicitation("fd00::1", "fd00::2", Some(ASKER));
    assert!(!ask(&arp, Meta::default(), answer_ns).1);
    assert!(!ask(&ns, Meta::default(), answer_arp).1);
}

#[test]
fn the_answers_metadata_says_nothing_of_the_question() {
    let mut request = solicitation("fd00::1", "fd00::2", Some(ASKER));
    request[57] ^= 0xff; // whatever is there: the checksum is still to be completed
    let meta = Meta {
        rx_time: 7,
        port: 3,
        eni: 4,
        l3: 14,
        l4: 54,
        payload: 62,
        hdr_len: 62,
        csum: Checksum::Partial { start: 54, offset: 2 },
        ..Meta::default()
    };
    let (_, answered, reply, after) = ask(&request, meta, answer);
    assert!(answered);
    assert_eq!((after.csum, after.gso, after.gso_size), (Checksum::None, GsoType::None, 0));
    assert_eq!((after.l3, after.l4, after.payload, after.hdr_len), (0, 0, 0, 0));
    assert_eq!((after.rx_time, after.port, after.eni), (7, 3, 4));
    assert!(parse(&reply, &after).is_ok(), "the checksum is whole");
}

proptest! {
    #[test]
    fn every_question_gets_an_answer_that_is_one(
        v4: bool, sender: u128, target: u128, mac: [u8; 6], link_layer: bool,
    ) {
        let request = if v4 {
            let [sender, target] = [sender, target].map(|a| Ipv4Addr::from_bits(a as u32).to_string());
            arp_frame(arp::Operation::Request, &sender, &target)
        } else {
            // Global unicast.
            let [sender, target] = [sender, target].map(|a| Ipv6Addr::from_bits(a >> 3 | 1 << 125).to_string());
            solicitation(&sender, &target, link_layer.then_some(ASKER))
        };
        let mut pool = Pool::new(1, 0).unwrap();
        let mut frame = pool.copy_from(&request).unwrap();
        let headers = parse(frame.data(), frame.meta()).unwrap();
        let asked = asks(&frame, &headers);
        let answered = answer(&mut frame, &headers, mac);
        let reply = frame.data().to_vec();
        pool.free(frame);
        prop_assert_eq!(answered, asked.is_some());
        if let Some(asked) = asked {
            let view = ethernet::View::new_checked(&reply).unwrap();
            prop_assert_eq!((view.dst().0, view.src().0), (asked.sender_mac, mac));
            // An address that cannot be a source is refused by the parser: such a question does not come through in practice.
            if let Ok(headers) = parse(&reply, &Meta::default()) {
                let at = headers.link_layer_offset().unwrap();
                prop_assert_eq!(&reply[at..at + 6], &mac[..]);
                let target = if v4 { headers.key.src() } else { headers.key.dst() };
                prop_assert_eq!(target, asked.target);
            }
        }
    }
}
