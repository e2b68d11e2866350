//! A row for each answer of each stage: a first packet in, and what becomes of it. Each row is judged three times: by the device,
//! by the host path because the device has no entries, and by the host path because the ENIs are not armed.

use crate::common::*;
use contract::Target;
use packet::{ConsumeReason, CreateReason, DropReason, PuntReason};
use std::net::{Ipv4Addr, Ipv6Addr};
use testkit::Build;
use testkit::builder::{arp_reply, arp_request, neighbor_advertisement, neighbor_solicitation};
use wire::ip::protocol::{ICMP, ICMPV6};

/// Who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    Device,
    /// The device has no entries.
    Host,
    /// The ENIs are not armed.
    Unarmed,
}

pub const EXECUTORS: [Executor; 3] = [Executor::Device, Executor::Host, Executor::Unarmed];

impl Executor {
    /// A device of the two tenants.
    pub fn bench(self) -> Bench {
        let mut bench = Bench::new(config());
        let policy = tenants();
        bench.install(Target::Host, &policy.entries, true);
        if self != Executor::Host {
            bench.install(Target::Device, &policy.entries, true);
        }
        bench.commit();
        if self != Executor::Unarmed {
            bench.arm(&ENIS);
        }
        bench
    }

    /// The thread that judges.
    pub fn name(self) -> String {
        if self == Executor::Device { "worker-0" } else { "host-path-0" }.into()
    }

    /// Why frames leave the device, if they do.
    fn punts(self, miss: PuntReason) -> Vec<PuntReason> {
        match self {
            Executor::Device => Vec::new(),
            Executor::Host => vec![miss],
            Executor::Unarmed => vec![PuntReason::NotArmed],
        }
    }
}

/// What is to become of a packet.
enum Expect {
    /// It leaves by this port, towards its ENI.
    To(usize),
    /// Whoever judges drops it.
    Drop(DropReason),
    /// The worker drops it, whoever judges.
    Early(DropReason),
}

use Expect::{Drop, Early, To};

#[test]
fn first_packets() {
    use DropReason::*;
    type Row = (&'static str, usize, fn(Family) -> Build, Expect);
    fn udp(f: Family, port: u16) -> Build {
        Build::udp(f.host(1), f.host(2)).ports(1000, port)
    }
    fn to(f: Family, dst: &str) -> Build {
        Build::udp(f.host(1), f.of(dst)).ports(1000, 9)
    }
    let rows: Vec<Row> = vec![
        ("UDP", BLUE_1, |f| udp(f, 9), To(BLUE_2)),
        ("UDP without data", BLUE_1, |f| udp(f, 9).payload(0), To(BLUE_2)),
        (
            "UDP with as much as the MTU takes",
            BLUE_1,
            |f| udp(f, 9).payload(1500 - f.header() - 8),
            To(BLUE_2),
        ),
        ("a byte more", BLUE_1, |f| udp(f, 9).payload(1501 - f.header() - 8), Drop(EgressMtuExceeded)),
        ("a type of service", BLUE_1, |f| udp(f, 9).tos(0xb9), To(BLUE_2)),
        ("the last hop", BLUE_1, |f| udp(f, 9).ttl(1), To(BLUE_2)),
        ("none left", BLUE_1, |f| udp(f, 9).ttl(0), Early(TtlExceeded)),
        ("a SYN", BLUE_1, |f| Build::tcp(f.host(1), f.host(2)), To(BLUE_2)),
        ("an ACK", BLUE_1, |f| Build::tcp(f.host(1), f.host(2)).flags(0x10), Drop(TcpNoConnection)),
        ("an echo request", BLUE_1, |f| Build::echo_request(f.host(1), f.host(2), 7, 1), To(BLUE_2)),
        ("an echo reply", BLUE_1, |f| Build::echo_reply(f.host(1), f.host(2), 7, 1), Drop(IcmpNoConnection)),
        ("the other tenant, same addresses", RED_1, |f| udp(f, 600), To(RED_2)),
        (
            "any protocol, without ACL",
            RED_1,
            |f| Build::other(f.host(1), f.host(2), 47).payload(9),
            To(RED_2),
        ),
        // eni
        ("a port without ENI", SPARE, |f| udp(f, 9), Early(NoEni)),
        ("another's MAC", BLUE_1, |f| udp(f, 9).macs(mac(BLUE_2), GATEWAY), Early(SpoofedMac)),
        ("another's address", BLUE_1, |f| Build::udp(f.host(3), f.host(2)), Drop(SpoofedIp)),
        // acl, outbound
        ("stage 1 denies, terminating", BLUE_1, |f| udp(f, 600), Drop(AclOutDenied)),
        ("stage 2 overrides a deny", BLUE_1, |f| udp(f, 601), To(BLUE_2)),
        ("stage 2 is not asked after terminating", BLUE_1, |f| udp(f, 602), To(BLUE_2)),
        ("stage 2 overrides an allow", BLUE_1, |f| udp(f, 603), Drop(AclOutDenied)),
        ("the lower priority first", BLUE_1, |f| udp(f, 605), To(BLUE_2)),
        ("stage 2 has no match", BLUE_1, |f| Build::other(f.host(1), f.host(2), 47), Drop(AclOutDenied)),
        (
            "denied before there is a route",
            BLUE_1,
            |f| to(f, "10.77.0.1").ports(1000, 600),
            Drop(AclOutDenied),
        ),
        (
            "denied to port 1000",
            BLUE_2,
            |f| Build::udp(f.host(2), f.host(1)).ports(9, 1000),
            Drop(AclOutDenied),
        ),
        // route
        ("no route", BLUE_1, |f| to(f, "10.77.0.1"), Drop(NoRoute)),
        ("a route that drops", BLUE_1, |f| to(f, "10.66.0.1"), Drop(RouteDrop)),
        ("a route to another VNET", BLUE_1, |f| to(f, "10.2.0.9"), To(RED_2)),
        ("no such route for the others", BLUE_2, |f| Build::udp(f.host(2), f.of("10.2.0.9")), Drop(NoRoute)),
        ("no mapping", BLUE_1, |f| to(f, "10.0.0.99"), Drop(NoMapping)),
        ("no mapping in another VNET", BLUE_1, |f| to(f, "10.2.0.8"), Drop(NoMapping)),
        ("a mapping to a port without ENI", BLUE_1, |f| to(f, "10.0.0.77"), Drop(NoMapping)),
        ("to itself", BLUE_1, |f| to(f, "10.0.0.1"), Drop(SameEni)),
        // acl, inbound
        ("the receiver denies", BLUE_1, |f| udp(f, 604), Drop(AclInDenied)),
        ("the other tenant's receiver does not", RED_1, |f| udp(f, 604), To(RED_2)),
    ];
    for executor in EXECUTORS {
        for family in FAMILIES {
            for (name, port, build, expect) in &rows {
                let name = format!("{name}, {family:?}, {executor:?}");
                let build = build(family);
                // Rows that say nothing of MAC addresses come from their ENI.
                let frame = match build.frame() {
                    frame if frame[6..12] == testkit::builder::SRC_MAC => {
                        build.macs(mac(*port), GATEWAY).frame()
                    }
                    frame => frame,
                };
                check(&mut executor.bench(), executor, *port, &frame, expect, &name);
            }
        }
    }
}

fn check(bench: &mut Bench, executor: Executor, port: usize, frame: &[u8], expect: &Expect, name: &str) {
    let outcome = bench.send_traced(port, frame);
    let (fate, punted) = match *expect {
        To(to) => (Fate::Sent(to), executor.punts(PuntReason::TableMiss)),
        Drop(reason) => (Fate::Dropped(reason, executor.name()), executor.punts(PuntReason::TableMiss)),
        Early(reason) => (Fate::Dropped(reason, "worker-0".into()), Vec::new()),
    };
    assert_eq!((&outcome.fate, &outcome.punted), (&fate, &punted), "{name}");
    if let To(to) = *expect {
        let left = outcome.left.expect("it was sent");
        assert_eq!(left.bytes[..6], mac(to), "{name}: the receiver's MAC");
        assert_eq!(left.bytes[6..], frame[6..], "{name}: all else as it came");
    }
}

#[test]
fn neighbours() {
    use ConsumeReason::*;
    enum Expect {
        /// The MAC address of this port's ENI.
        Mac(usize),
        Ignored,
        Drop(DropReason),
        Early(DropReason),
    }
    use Expect::*;
    type Row = (&'static str, usize, fn(Family) -> Vec<u8>, Expect);
    fn v4(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }
    fn v6(n: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n)
    }
    /// Who-has: from the ENI of a port, with sender address `from` (0: none).
    fn ask(f: Family, mac: [u8; 6], from: u8, target: u8) -> Vec<u8> {
        match (f, from) {
            (Family::V4, 0) => arp_request(mac, Ipv4Addr::UNSPECIFIED, v4(target)),
            (Family::V4, _) => arp_request(mac, v4(from), v4(target)),
            (Family::V6, 0) => neighbor_solicitation(mac, Ipv6Addr::UNSPECIFIED, v6(target.into())),
            (Family::V6, _) => neighbor_solicitation(mac, v6(from.into()), v6(target.into())),
        }
    }
    fn tell(f: Family, mac: [u8; 6], from: u8) -> Vec<u8> {
        match f {
            Family::V4 => arp_reply(mac, v4(from), GATEWAY, v4(2)),
            Family::V6 => neighbor_advertisement(mac, v6(from.into()), GATEWAY, v6(2)),
        }
    }
    let rows: Vec<Row> = vec![
        ("a neighbour", BLUE_1, |f| ask(f, mac(BLUE_1), 1, 2), Mac(BLUE_2)),
        ("the other tenant's", RED_1, |f| ask(f, mac(RED_1), 1, 2), Mac(RED_2)),
        ("the other way", RED_2, |f| ask(f, mac(RED_2), 2, 1), Mac(RED_1)),
        ("its own address", BLUE_1, |f| ask(f, mac(BLUE_1), 1, 1), Ignored),
        ("whether somebody has its address", BLUE_1, |f| ask(f, mac(BLUE_1), 0, 1), Ignored),
        ("an answer", BLUE_1, |f| tell(f, mac(BLUE_1), 1), Ignored),
        ("nobody's address", BLUE_1, |f| ask(f, mac(BLUE_1), 1, 99), Drop(DropReason::ArpUnknownAddress)),
        ("as another", BLUE_1, |f| ask(f, mac(BLUE_1), 3, 2), Drop(DropReason::SpoofedArp)),
        ("an answer as another", BLUE_1, |f| tell(f, mac(BLUE_1), 3), Drop(DropReason::SpoofedArp)),
        (
            "another's MAC inside",
            BLUE_1,
            |f| with_mac(ask(f, mac(BLUE_2), 1, 2), mac(BLUE_1)),
            Drop(DropReason::SpoofedArp),
        ),
        ("another's MAC", BLUE_1, |f| ask(f, mac(BLUE_2), 1, 2), Early(DropReason::SpoofedMac)),
        ("a port without ENI", SPARE, |f| ask(f, mac(BLUE_1), 1, 2), Early(DropReason::NoEni)),
    ];
    for executor in EXECUTORS {
        for family in FAMILIES {
            for (name, port, frame, expect) in &rows {
                let name = format!("{name}, {family:?}, {executor:?}");
                let (ignored, created, unknown) = match family {
                    Family::V4 => (ArpIgnored, CreateReason::ArpReply, DropReason::ArpUnknownAddress),
                    Family::V6 => (NdIgnored, CreateReason::NdAdvertisement, DropReason::NdUnknownAddress),
                };
                let frame = frame(family);
                let outcome = executor.bench().send_traced(*port, &frame);
                let fate = match *expect {
                    Mac(_) => Fate::Answered(created, *port, executor.name()),
                    Ignored => Fate::Consumed(ignored, executor.name()),
                    Drop(DropReason::ArpUnknownAddress) => Fate::Dropped(unknown, executor.name()),
                    Drop(reason) => Fate::Dropped(reason, executor.name()),
                    Early(reason) => Fate::Dropped(reason, "worker-0".into()),
                };
                assert_eq!(outcome.fate, fate, "{name}");
                if let Mac(of) = *expect {
                    // The whole answer, as the one who has the address would give it.
                    let (asker, target) = if *port == RED_2 { (2, 1) } else { (1, 2) };
                    let expected = match family {
                        Family::V4 => arp_reply(mac(of), v4(target), mac(*port), v4(asker)),
                        Family::V6 => {
                            neighbor_advertisement(mac(of), v6(target.into()), mac(*port), v6(asker.into()))
                        }
                    };
                    assert_eq!(outcome.left.expect("an answer").bytes, expected, "{name}");
                }
            }
        }
    }
}

/// The frame from another MAC address, what it says inside unchanged.
fn with_mac(mut frame: Vec<u8>, mac: [u8; 6]) -> Vec<u8> {
    frame[6..12].copy_from_slice(&mac);
    frame
}

#[test]
fn super_frames_and_checksums_pass_as_they_are() {
    for executor in EXECUTORS {
        for family in FAMILIES {
            let mut bench = executor.bench();
            let tcp = |flags, seq, ack, payload| {
                let (src, dst) = (family.host(1), family.host(2));
                let build = Build::tcp(src, dst).macs(mac(BLUE_1), GATEWAY);
                build.flags(flags).numbers(seq, ack).payload(payload).frame()
            };
            let back = |flags, seq, ack| {
                let (src, dst) = (family.host(2), family.host(1));
                let build = Build::tcp(src, dst).macs(mac(BLUE_2), GATEWAY).ports(80, 1000);
                build.flags(flags).numbers(seq, ack).frame()
            };
            let headers = 14 + family.header() + 20;
            // The handshake.
            let csum_at = (14 + family.header()) as u16;
            let syn = bench.send(BLUE_1, partial(tcp(0x02, 0, 0, 0), csum_at, 16));
            let meta = syn.left.expect("sent").meta;
            assert_eq!(
                meta.csum,
                packet::Checksum::Partial { start: csum_at, offset: 16 },
                "still to be completed"
            );
            assert_eq!(bench.send(BLUE_2, &back(0x12, 0, 1)[..]).fate, Fate::Sent(BLUE_1));
            assert_eq!(bench.send(BLUE_1, &tcp(0x10, 1, 1, 0)[..]).fate, Fate::Sent(BLUE_2));
            // Segments that fit, and segments that do not.
            let fitting = 1500 - (headers - 14) as u16;
            let frame = tcp(0x10, 1, 1, 20_000);
            let before = bench.ledger().left.port;
            let outcome = bench.send(BLUE_1, super_frame(frame.clone(), fitting));
            assert_eq!(outcome.fate, Fate::Sent(BLUE_2), "{family:?} {executor:?}");
            let left = outcome.left.expect("sent");
            assert_eq!(left.bytes[6..], frame[6..]);
            assert_eq!(
                (left.meta.is_gso(), left.meta.gso_size),
                (true, fitting),
                "one frame, its segments' size kept"
            );
            let after = bench.ledger().left.port;
            let segments = 20_000u64.div_ceil(fitting.into());
            assert_eq!(after.frames - before.frames, 1);
            assert_eq!(after.packets - before.packets, segments, "worth its segments");
            assert_eq!(after.bytes - before.bytes, 20_000 + segments * headers as u64, "with a header each");
            let outcome = bench.send(BLUE_1, super_frame(frame, fitting + 1));
            assert_eq!(outcome.fate, Fate::Dropped(DropReason::EgressMtuExceeded, executor_of(&bench)));
        }
    }
    /// Established connections may have moved into the device.
    fn executor_of(bench: &Bench) -> String {
        if bench.tiers().2 == 0 { "worker-0" } else { "host-path-0" }.into()
    }
}

#[test]
fn each_icmp_belongs_to_its_own_ip() {
    for (family, protocol) in [(Family::V4, ICMPV6), (Family::V6, ICMP)] {
        let build = Build::other(family.host(1), family.host(2), protocol).payload(8);
        let outcome = Executor::Device.bench().send(BLUE_1, &build.macs(mac(BLUE_1), GATEWAY).frame()[..]);
        assert_eq!(outcome.fate, Fate::Dropped(DropReason::IcmpTypeUnsupported, "worker-0".into()));
    }
}
