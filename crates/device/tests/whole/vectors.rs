//! Malformed frames of ours: lengths that lie, headers cut short, fragments, odd extension headers, metadata that does not fit. And
//! the devices through which they go, with those of `captures.rs`.

use crate::common::*;
use contract::Target;
use packet::{Checksum, DropReason, GsoType, Meta};
use ports::Packet;
use std::collections::BTreeMap;
use testkit::Build;
use testkit::builder::{arp_request, fix_ipv4, neighbor_solicitation};
use wire::ip::protocol::{AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING, UDP};

/// What each frame is sent through.
pub struct Devices {
    benches: Vec<(&'static str, Bench)>,
    /// What became of the frames at the first of them.
    fates: BTreeMap<String, usize>,
}

/// Two ENIs that may use any address, and whatever one sends goes to the other.
fn open() -> Policy {
    let mut p = Policy::default();
    for (port, other) in [(0, 1), (1, 0)] {
        let eni = port + 1;
        p.eni(port, eni, mac(port.into()), u32::from(eni), 0, Groups::default());
        for all in ["0.0.0.0/0", "::/0"] {
            p.source(eni, all);
            p.route(eni, all, Some(u32::from(eni)));
            p.mapping(u32::from(eni), all, other, mac(other.into()));
        }
    }
    p
}

fn open_device(workers: usize, in_device: bool) -> Bench {
    let mut config = config();
    config.workers = workers;
    config.ports.iter_mut().for_each(|p| p.mtu = 65_535);
    let mut bench = Bench::new(config);
    bench.install(Target::Host, &open().entries, true);
    if in_device {
        bench.install(Target::Device, &open().entries, true);
    }
    bench.commit();
    bench.arm(&[1, 2]);
    bench
}

fn meta(gso: GsoType, gso_size: u16, csum: Checksum) -> Meta {
    Meta { gso, gso_size, csum, hdr_len: 66, ..Meta::default() }
}

impl Devices {
    pub fn new() -> Devices {
        let tenant = || Bench::loaded(config(), &tenants(), &ENIS);
        let benches = vec![
            ("open", open_device(1, true)),
            ("open, at the host path", open_device(1, false)),
            ("open, two workers", open_device(2, true)),
            ("open, as super-frames", open_device(1, true)),
            ("ordinary", tenant()),
            ("ordinary, from the ENI's MAC", tenant()),
        ];
        Devices { benches, fates: BTreeMap::new() }
    }

    /// Sends a frame through each of them; what became of it at the first.
    pub fn send(&mut self, name: &str, frame: &[u8]) -> Fate {
        let packet = Packet::from(frame);
        self.send_packet(name, &packet)
    }

    pub fn send_packet(&mut self, name: &str, packet: &Packet) -> Fate {
        let mut first = None;
        for (device, bench) in &mut self.benches {
            let mut packet = packet.clone();
            if device.ends_with("super-frames") && !packet.meta.is_gso() {
                packet.meta = meta(GsoType::TcpV4, 1448, Checksum::Partial { start: 34, offset: 16 });
            }
            if device.ends_with("MAC") && packet.bytes.len() >= 12 {
                packet.bytes[6..12].copy_from_slice(&mac(BLUE_1));
            }
            bench.now += 10_000_000;
            let frame = packet.bytes.clone();
            let _at = Naming(name, device);
            let outcome = bench.send(BLUE_1, packet);
            if let (Fate::Sent(port), Some(left)) = (&outcome.fate, &outcome.left) {
                assert_eq!(left.bytes[..6], mac(*port), "{name}, {device}");
                assert_eq!(left.bytes[6..], frame[6..], "{name}, {device}: unchanged");
            }
            first.get_or_insert(outcome.fate);
        }
        let fate = first.expect("a device");
        let word = match &fate {
            Fate::Sent(_) => "forwarded".into(),
            Fate::Dropped(reason, _) => reason.to_string(),
            Fate::Consumed(reason, _) => reason.to_string(),
            Fate::Answered(reason, ..) => reason.to_string(),
        };
        *self.fates.entry(word).or_default() += 1;
        fate
    }

    /// No buffer was lost on the way, and every frame is in the account; how many frames the first device forwarded.
    pub fn finish(self, sent: usize) -> usize {
        for (name, bench) in &self.benches {
            assert_eq!(bench.drops(DropReason::PortRxNoBuffer), 0, "{name}: buffers did not come home");
            assert_eq!(bench.ledger().entered.port.frames, sent as u64, "{name}");
        }
        let words: Vec<String> = self.fates.iter().map(|(fate, n)| format!("{fate} {n}")).collect();
        println!("{}", words.join(", "));
        self.fates.get("forwarded").copied().unwrap_or(0)
    }
}

/// Says which frame it was when something panics on its way.
struct Naming<'a>(&'a str, &'a str);

impl Drop for Naming<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on the way: {}, {}", self.0, self.1);
        }
    }
}

fn udp(f: Family) -> Build {
    Build::udp(f.host(1), f.host(2)).macs(mac(BLUE_1), GATEWAY).payload(32)
}

/// IPv6 with these headers in front of a UDP datagram of 8 bytes.
fn chain(first: u8, headers: &[u8]) -> Vec<u8> {
    let datagram = &Build::udp("fd00::1", "fd00::2").frame()[54..];
    let build = Build::other("fd00::1", "fd00::2", first).bytes(&[headers, datagram].concat());
    build.macs(mac(BLUE_1), GATEWAY).frame()
}

fn edit(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    if frame[12..14] == [8, 0] && frame[14] == 0x45 {
        fix_ipv4(&mut frame);
    }
    frame
}

#[test]
fn malformed_frames() {
    use DropReason::*;
    let v4 = || udp(Family::V4).frame();
    let v6 = || udp(Family::V6).frame();
    let tcp4 = || Build::tcp("10.0.0.1", "10.0.0.2").macs(mac(BLUE_1), GATEWAY).payload(8).frame();
    let options = |next: u8, units: u8| {
        let mut header = vec![next, units, 1, 4];
        header.resize(8 * (usize::from(units) + 1), 0);
        header
    };
    let all = [options(UDP, 0), vec![]].concat();
    let fragment = |offset: u16, more: u16| {
        let field = (offset << 3 | more).to_be_bytes();
        chain(FRAGMENT, &[UDP, 0, field[0], field[1], 0, 0, 0, 9])
    };
    let rows: Vec<(&str, Vec<u8>, Result<(), DropReason>)> = vec![
        // Lengths that lie.
        ("total length 0", edit(v4(), 16, &[0, 0]), Err(Ipv4LengthInvalid)),
        ("total length below the header", edit(v4(), 16, &[0, 19]), Err(Ipv4LengthInvalid)),
        ("total length beyond the frame", edit(v4(), 16, &[0xff, 0xff]), Err(Ipv4LengthInvalid)),
        ("total length that cuts UDP", edit(v4(), 16, &[0, 27]), Err(UdpLengthInvalid)),
        ("header length 16", edit(v4(), 14, &[0x44]), Err(Ipv4HeaderInvalid)),
        (
            "header length beyond the packet",
            edit(edit(v4(), 16, &[0, 40]), 14, &[0x4f]),
            Err(Ipv4LengthInvalid),
        ),
        ("payload length beyond the frame", edit(v6(), 18, &[0xff, 0xff]), Err(Ipv6LengthInvalid)),
        ("payload length 0", edit(v6(), 18, &[0, 0]), Err(UdpLengthInvalid)),
        ("UDP length 0", edit(v4(), 38, &[0, 0]), Err(UdpLengthInvalid)),
        ("UDP length 7", edit(v6(), 58, &[0, 7]), Err(UdpLengthInvalid)),
        ("UDP length beyond the packet", edit(v6(), 58, &[0x40, 0]), Err(UdpLengthInvalid)),
        ("TCP header length 16", edit(tcp4(), 46, &[0x40]), Err(TcpHeaderInvalid)),
        ("TCP header beyond the packet", edit(tcp4(), 46, &[0xf0]), Err(TcpHeaderInvalid)),
        // Fragments.
        ("the first fragment", edit(v4(), 20, &[0x20, 0]), Err(FragmentUnsupported)),
        ("a later fragment", edit(v4(), 20, &[0x20, 0xb9]), Err(FragmentUnsupported)),
        ("the last fragment", edit(v4(), 20, &[0, 0xb9]), Err(FragmentUnsupported)),
        ("a fragment that ends beyond 65,535", edit(v4(), 20, &[0x1f, 0xff]), Err(FragmentUnsupported)),
        ("may be fragmented, is not", edit(v4(), 20, &[0x40, 0]), Ok(())),
        ("the first fragment, IPv6", fragment(0, 1), Err(FragmentUnsupported)),
        ("a later fragment, IPv6", fragment(0x1fff, 1), Err(FragmentUnsupported)),
        ("the last fragment, IPv6", fragment(185, 0), Err(FragmentUnsupported)),
        ("an atomic fragment", fragment(0, 0), Ok(())),
        (
            "half a fragment header",
            edit(fragment(0, 0), 18, &[0, 4])[..58].to_vec(),
            Err(Ipv6ExtensionInvalid),
        ),
        // Extension headers.
        ("hop-by-hop options", chain(HOP_BY_HOP, &options(UDP, 0)), Ok(())),
        (
            "hop-by-hop options later",
            chain(DESTINATION_OPTIONS, &[options(HOP_BY_HOP, 0), all.clone()].concat()),
            Err(Ipv6ExtensionInvalid),
        ),
        ("a long header", chain(DESTINATION_OPTIONS, &options(UDP, 60)), Ok(())),
        (
            "a header longer than the packet",
            chain(DESTINATION_OPTIONS, &[UDP, 255, 1, 4, 0, 0, 0, 0]),
            Err(Ipv6ExtensionInvalid),
        ),
        (
            "eight headers",
            chain(DESTINATION_OPTIONS, &[options(DESTINATION_OPTIONS, 0).repeat(7), all.clone()].concat()),
            Ok(()),
        ),
        (
            "nine",
            chain(DESTINATION_OPTIONS, &[options(DESTINATION_OPTIONS, 0).repeat(8), all].concat()),
            Err(Ipv6ExtensionInvalid),
        ),
        (
            "a routing header of type 0",
            chain(ROUTING, &[UDP, 2, 0, 1, 0, 0, 0, 0].iter().copied().chain([0; 16]).collect::<Vec<_>>()),
            Err(Ipv6ExtensionInvalid),
        ),
        ("a routing header with nothing left", chain(ROUTING, &[UDP, 0, 0, 0, 0, 0, 0, 0]), Ok(())),
        ("an authentication header", chain(AH, &[UDP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 9, 9, 9, 9]), Ok(())),
        ("nothing behind", Build::other("fd00::1", "fd00::2", 59).frame(), Ok(())),
        // Errors about what cannot be read.
        (
            "an error that quotes nothing",
            Build::icmp("10.0.0.1", "10.0.0.2", 3, 4, [0; 4]).frame(),
            Err(IcmpQuoteInvalid),
        ),
        (
            "an error that quotes itself",
            {
                let inner = Build::unreachable("10.0.0.2", &udp(Family::V4).frame()).frame();
                Build::unreachable("10.0.0.2", &inner).frame()
            },
            Err(IcmpQuoteInvalid),
        ),
        (
            "ICMP of 4 bytes",
            Build::other("10.0.0.1", "10.0.0.2", 1).bytes(&[3, 3, 0, 0]).frame(),
            Err(IcmpHeaderInvalid),
        ),
        // Other layers.
        ("a VLAN tag", [&v4()[..12], &[0x81, 0, 0, 5], &v4()[12..]].concat(), Err(VlanUnsupported)),
        (
            "two",
            [&v4()[..12], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], &v4()[12..]].concat(),
            Err(VlanUnsupported),
        ),
        ("MPLS", edit(v4(), 12, &[0x88, 0x47]), Err(EthertypeUnsupported)),
        ("a length for a type", edit(v4(), 12, &[0, 60]), Err(EthertypeUnsupported)),
        ("IPv6 said to be IPv4", edit(v6(), 12, &[8, 0]), Err(Ipv4HeaderInvalid)),
        ("padding", [v4(), vec![0xee; 20]].concat(), Ok(())),
        ("larger than a buffer", [v4(), vec![0; 66_000]].concat(), Err(FrameTooLarge)),
    ];
    let mut devices = Devices::new();
    let sent = rows.len();
    for (name, frame, expected) in rows {
        let fate = devices.send(name, &frame);
        let expected = match expected {
            Ok(()) => Fate::Sent(BLUE_2),
            Err(reason) => Fate::Dropped(reason, "worker-0".into()),
        };
        assert_eq!(fate, expected, "{name}");
    }
    devices.finish(sent);
}

/// A good frame of each kind.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let (a, b) = ("10.0.0.1", "10.0.0.2");
    let (a6, b6) = ("fd00::1", "fd00::2");
    let hops = [&[UDP, 0, 1, 4, 0, 0, 0, 0][..]].concat();
    vec![
        ("UDP", udp(Family::V4).frame()),
        ("UDP, IPv6", udp(Family::V6).frame()),
        ("TCP", Build::tcp(a, b).options(&[2, 4, 5, 0xb4, 1, 3, 3, 9]).frame()),
        ("TCP, IPv6", Build::tcp(a6, b6).options(&[2, 4, 5, 0xb4, 1, 3, 3, 9]).frame()),
        ("echo", Build::echo_request(a, b, 1, 1).payload(8).frame()),
        ("echo, IPv6", Build::echo_request(a6, b6, 1, 1).payload(8).frame()),
        ("an error", Build::unreachable(a, &Build::udp(b, a).frame()).frame()),
        ("an error, IPv6", Build::unreachable(a6, &Build::udp(b6, a6).frame()).frame()),
        ("ARP", arp_request(mac(BLUE_1), a.parse().unwrap(), b.parse().unwrap())),
        ("a solicitation", neighbor_solicitation(mac(BLUE_1), a6.parse().unwrap(), b6.parse().unwrap())),
        ("hop-by-hop options", chain(HOP_BY_HOP, &hops)),
        ("a fragment header", chain(FRAGMENT, &[UDP, 0, 0, 0, 0, 0, 0, 9])),
    ]
}

#[test]
fn frames_cut_short_at_every_byte() {
    let mut devices = Devices::new();
    let mut sent = 0;
    for (name, frame) in kinds() {
        for length in 0..frame.len() {
            sent += 1;
            let fate = devices.send(&format!("{name}, {length} bytes"), &frame[..length]);
            assert!(matches!(fate, Fate::Dropped(..)), "{name}, {length} of {} bytes: {fate:?}", frame.len());
        }
    }
    devices.finish(sent);
}

#[test]
fn every_byte_of_a_frame_may_be_wrong() {
    let mut devices = Devices::new();
    let mut sent = 0;
    for (name, frame) in kinds() {
        for at in 12..frame.len() {
            for value in [0, 0xff, frame[at] ^ 1] {
                sent += 1;
                devices.send(&format!("{name}, byte {at} is {value}"), &edit(frame.clone(), at, &[value]));
            }
        }
    }
    devices.finish(sent);
}

#[test]
fn metadata_that_does_not_fit() {
    let mut devices = Devices::new();
    let mut sent = 0;
    let ends = [0, 1, 1448, u16::MAX];
    for (name, frame) in kinds() {
        for gso in [GsoType::None, GsoType::TcpV4, GsoType::TcpV6, GsoType::UdpL4] {
            for gso_size in ends {
                for csum in [Checksum::None, Checksum::Verified]
                    .into_iter()
                    .chain(ends.map(|start| Checksum::Partial { start, offset: u16::MAX - start }))
                {
                    sent += 1;
                    let meta = Meta { hdr_len: gso_size, ..meta(gso, gso_size, csum) };
                    let packet = Packet { bytes: frame.clone(), meta };
                    devices.send_packet(&format!("{name}, {gso:?}, {gso_size}, {csum:?}"), &packet);
                }
            }
        }
    }
    devices.finish(sent);
}
