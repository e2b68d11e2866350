//! One test for each reason to drop a frame, and the proof that none is left out.

use crate::common::*;
use crate::rows::Executor;
use contract::Target;
use device::Config;
use model::{MissPolicy, ResetPolicy};
use packet::{Batch, Count, DropReason, LARGE, Pool};
use ports::{MemoryPort, Outcomes, Packet, Port, Received, TxOutcome};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use testkit::Build;
use testkit::builder::{arp_request, fix_ipv4, neighbor_solicitation};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// Where else a reason is reached: by kernel ports, against the kernel. What follows from it in the device is tested here.
const ELSEWHERE: &[(DropReason, &str, &str)] = &[
    (DropReason::PortRxKernel, "crates/ports/tests/kernel/main.rs", "fn a_kernel_drop_is_counted"),
    (
        DropReason::PortRxNoBuffer,
        "crates/ports/tests/kernel/main.rs",
        "fn without_buffers_frames_are_dropped_by_name",
    ),
    (DropReason::PortDown, "crates/ports/tests/kernel/main.rs", "fn a_link_that_is_down_has_a_name"),
];

macro_rules! reasons {
    ($($name:ident $reason:ident $body:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let reason = DropReason::$reason;
                assert_eq!(stringify!($name), reason.code());
                let body: fn(DropReason) = $body;
                body(reason);
            }
        )+

        /// The reasons reached by the tests above.
        const HERE: &[DropReason] = &[$(DropReason::$reason),+];
    };
}

#[test]
fn every_reason_is_reached() {
    assert_eq!(HERE, DropReason::ALL, "each once, in the order of their declaration");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (reason, file, test) in ELSEWHERE {
        let text =
            std::fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{reason}: {file}: {e}"));
        assert!(text.contains(test), "{reason}: {file} has no \"{test}\"");
    }
}

fn udp(f: Family) -> Vec<u8> {
    from(BLUE_1, Build::udp(f.host(1), f.host(2)).ports(1000, 9).payload(16))
}

fn tcp(f: Family, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    from(BLUE_1, Build::tcp(f.host(1), f.host(2)).flags(flags).numbers(seq, ack))
}

fn from(port: usize, build: Build) -> Vec<u8> {
    build.macs(mac(port), GATEWAY).frame()
}

fn edit(mut frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    change(&mut frame);
    frame
}

/// An edited IPv4 header, its checksum right.
fn edit_ip(frame: Vec<u8>, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = edit(frame, change);
    fix_ipv4(&mut frame);
    frame
}

/// Sent by blue-1, each of these is dropped by the worker.
fn early(reason: DropReason, frames: impl IntoIterator<Item = Vec<u8>>) {
    for (n, frame) in frames.into_iter().enumerate() {
        let outcome = Executor::Device.bench().send(BLUE_1, &frame[..]);
        assert_eq!(outcome.fate, Fate::Dropped(reason, "worker-0".into()), "frame {n}");
        assert!(outcome.left.is_none());
    }
}

/// Sent in one after the other, the last of these is dropped, and no other; in the device, and at the host path.
fn last(reason: DropReason, frames: impl Fn(Family) -> Vec<(usize, Vec<u8>)>) {
    for family in FAMILIES {
        for executor in [Executor::Device, Executor::Host] {
            let mut bench = executor.bench();
            let frames = frames(family);
            let (last, before) = frames.split_last().expect("a frame");
            for (port, frame) in before {
                assert!(matches!(bench.send(*port, &frame[..]).fate, Fate::Sent(_)));
            }
            let Fate::Dropped(why, _) = bench.send(last.0, &last.1[..]).fate else { panic!("{reason}") };
            assert_eq!(why, reason, "{family:?}, {executor:?}");
        }
    }
}

/// A device of the two tenants, changed.
fn changed(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = config();
    change(&mut config);
    Bench::loaded(config, &tenants(), &ENIS)
}

/// The same with nothing in the device.
fn host_only(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = config();
    change(&mut config);
    let mut bench = Bench::new(config);
    bench.install(Target::Host, &tenants().entries, true);
    bench.commit();
    bench.arm(&ENIS);
    bench
}

/// Frames of `n` connections of blue-1.
fn many(bench: &Bench, n: u16) {
    for port in 0..n {
        bench.push(BLUE_1, &from(BLUE_1, Build::udp("10.0.0.1", "10.0.0.2").ports(2000 + port, 9))[..]);
    }
}

/// A port at which the kernel fails.
struct Failing {
    received: Received,
}

impl Port for Failing {
    fn receive(&mut self, _: &mut Pool, _: &mut Batch, _: u64) -> Received {
        std::mem::take(&mut self.received)
    }

    fn transmit(&mut self, batch: &mut Batch, outcomes: &mut Outcomes) {
        batch.iter().for_each(|(n, _)| outcomes[n] = TxOutcome::Dropped(DropReason::PortTxError));
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// blue-2 is behind a port that fails, at which this comes in.
fn failing(received: Received) -> Bench {
    let config = config();
    let (mut queues, mut handles): (Vec<Vec<Box<dyn Port>>>, _) = (Vec::new(), Vec::new());
    for _ in &config.ports {
        let (near, far) = MemoryPort::pair(16);
        queues.push(vec![Box::new(near)]);
        handles.push(vec![far]);
    }
    queues[BLUE_2] = vec![Box::new(Failing { received })];
    let mut bench = Bench::on(config, queues, handles);
    bench.load(&tenants());
    bench.arm(&ENIS);
    bench
}

/// What a failing port did not deliver counts as come in, and as dropped.
fn undelivered(reason: DropReason, received: Received, count: Count) {
    let bench = failing(received);
    let ledger = bench.ledger();
    assert_eq!((ledger.entered.port, ledger.left.drops[reason.index()]), (count, count));
    let port = &bench.reports()[0].ports[BLUE_2];
    assert_eq!((port.rx, port.drops), (count, count.frames), "at its port, too");
}

const THREE: Count = Count { frames: 3, packets: 3, bytes: 0 };

reasons! {
    ethernet_truncated EthernetTruncated |r| early(r, [Vec::new(), udp(Family::V4)[..13].to_vec()]);
    vlan_unsupported VlanUnsupported |r| early(r, [[0x81, 0], [0x88, 0xa8]].map(|tag| edit(udp(Family::V4), |f| {
        f.splice(12..12, [tag[0], tag[1], 0, 7]);
    })));
    ethertype_unsupported EthertypeUnsupported |r| early(r, [[0x88, 0xcc], [0, 46], [0x88, 0x47]].map(|to| edit(udp(Family::V4), |f| {
        f[12..14].copy_from_slice(&to);
    })));
    ipv4_header_invalid Ipv4HeaderInvalid |r| early(r, [
        edit_ip(udp(Family::V4), |f| f[14] = 0x55),
        edit(udp(Family::V4), |f| f[14] = 0x44),
        udp(Family::V4)[..33].to_vec(),
        edit(udp(Family::V4), |f| f[14] = 0x4f),
    ]);
    ipv4_length_invalid Ipv4LengthInvalid |r| early(r, [
        edit_ip(udp(Family::V4), |f| f[16..18].copy_from_slice(&[0, 19])),
        edit_ip(udp(Family::V4), |f| f[17] += 1),
        edit_ip(udp(Family::V4), |f| f[16..18].fill(0)),
    ]);
    ipv4_checksum_invalid Ipv4ChecksumInvalid |r| early(r, [edit(udp(Family::V4), |f| f[24] ^= 1)]);
    ipv6_header_invalid Ipv6HeaderInvalid |r| early(r, [
        edit(udp(Family::V6), |f| f[14] = 0x45),
        udp(Family::V6)[..53].to_vec(),
        edit(udp(Family::V6), |f| f[38..54].copy_from_slice(&map("10.0.0.2").to_be_bytes())),
    ]);
    ipv6_length_invalid Ipv6LengthInvalid |r| early(r, [edit(udp(Family::V6), |f| f[19] += 1)]);
    ipv6_extension_invalid Ipv6ExtensionInvalid |r| early(r, [
        from(BLUE_1, Build::other("fd00::1", "fd00::2", 60).payload(7)),
        from(BLUE_1, Build::other("fd00::1", "fd00::2", 60).bytes(&[60, 0, 1, 4, 0, 0, 0, 0].repeat(9))),
        from(BLUE_1, Build::other("fd00::1", "fd00::2", 60).bytes(&[0, 0, 1, 4, 0, 0, 0, 0].repeat(2))),
    ]);
    fragment_unsupported FragmentUnsupported |r| early(r, [
        edit_ip(udp(Family::V4), |f| f[20] = 0x20),
        edit_ip(udp(Family::V4), |f| f[21] = 1),
        from(BLUE_1, Build::other("fd00::1", "fd00::2", 44).bytes(&[17, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0])),
        from(BLUE_1, Build::other("fd00::1", "fd00::2", 44).bytes(&[17, 0, 0xff, 0xf8, 0, 0, 0, 7])),
    ]);
    ip_source_invalid IpSourceInvalid |r| {
        let v4 = ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0"].map(|src| (src, "10.0.0.2"));
        let v6 = ["::", "::1", "ff02::1", "::ffff:10.0.0.1"].map(|src| (src, "fd00::2"));
        early(r, v4.into_iter().chain(v6).map(|(src, dst)| from(BLUE_1, Build::udp(src, dst))));
    };
    multicast_unsupported MulticastUnsupported |r| {
        let to = [("10.0.0.1", "224.0.0.5"), ("10.0.0.1", "255.255.255.255"), ("fd00::1", "ff02::1")];
        let frames = to.map(|(src, dst)| from(BLUE_1, Build::udp(src, dst)));
        early(r, frames.into_iter().chain([edit(udp(Family::V4), |f| f[..6].fill(0xff))]));
    };
    ttl_exceeded TtlExceeded |r| early(r, FAMILIES.map(|f| from(BLUE_1, Build::udp(f.host(1), f.host(2)).ttl(0))));
    tcp_header_invalid TcpHeaderInvalid |r| early(r, FAMILIES.map(|f| edit(tcp(f, SYN, 0, 0), |bytes| {
        bytes[14 + f.header() + 12] = 0x40;
    })));
    tcp_flags_invalid TcpFlagsInvalid |r| early(r, [0, SYN | FIN, SYN | RST].map(|flags| tcp(Family::V6, flags, 0, 0)));
    udp_length_invalid UdpLengthInvalid |r| early(r, FAMILIES.into_iter().flat_map(|f| {
        [0, 7, 25].map(|length| edit(udp(f), |bytes| bytes[14 + f.header() + 5] = length))
    }));
    icmp_header_invalid IcmpHeaderInvalid |r| early(r, [(Family::V4, 1), (Family::V6, 58)].map(|(f, protocol)| {
        from(BLUE_1, Build::other(f.host(1), f.host(2), protocol).bytes(&[3; 7]))
    }));
    icmp_checksum_invalid IcmpChecksumInvalid |r| early(r, FAMILIES.map(|f| {
        let answer = Build::udp(f.host(2), f.host(1)).frame();
        edit(from(BLUE_1, Build::unreachable(f.host(1), &answer)), |bytes| bytes[14 + f.header() + 2] ^= 1)
    }));
    icmp_type_unsupported IcmpTypeUnsupported |r| early(r, [(Family::V4, 13), (Family::V4, 5), (Family::V6, 133), (Family::V6, 137)].map(
        |(f, kind)| from(BLUE_1, Build::icmp(f.host(1), f.host(2), kind, 0, [0; 4]).payload(40)),
    ));
    icmp_quote_invalid IcmpQuoteInvalid |r| early(r, [(Family::V4, 3), (Family::V6, 1)].map(|(f, kind)| {
        from(BLUE_1, Build::icmp(f.host(1), f.host(2), kind, 0, [0; 4]).payload(20))
    }));
    arp_invalid ArpInvalid |r| {
        let frame = arp_request(mac(BLUE_1), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        early(r, [frame[..41].to_vec(), edit(frame.clone(), |f| f[15] = 6), edit(frame, |f| f[21] = 3)]);
    };
    nd_invalid NdInvalid |r| {
        let frame = neighbor_solicitation(mac(BLUE_1), "fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        early(r, [edit(frame.clone(), |f| f[21] = 64), edit(frame, |f| f[79] = 0)]);
    };
    no_eni NoEni |r| {
        let outcome = Executor::Device.bench().send(SPARE, &udp(Family::V4)[..]);
        assert_eq!(outcome.fate, Fate::Dropped(r, "worker-0".into()));
    };
    not_armed NotArmed |r| {
        let mut bench = Bench::new(Config { reset_policy: ResetPolicy::Deny, ..config() });
        bench.load(&tenants());
        let asked = arp_request(mac(BLUE_1), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        for frame in [udp(Family::V4), udp(Family::V6), asked] {
            assert_eq!(bench.send(BLUE_1, &frame[..]).fate, Fate::Dropped(r, "worker-0".into()));
        }
        // Nor is anything delivered to an ENI that is not armed.
        bench.arm(&[1]);
        assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Dropped(r, "worker-0".into()));
        bench.arm(&[2]);
        assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Sent(BLUE_2));
    };
    spoofed_mac SpoofedMac |r| early(r, FAMILIES.map(|f| edit(udp(f), |bytes| bytes[11] ^= 1)));
    spoofed_ip SpoofedIp |r| last(r, |f| vec![(BLUE_1, from(BLUE_1, Build::udp(f.host(3), f.host(2))))]);
    spoofed_arp SpoofedArp |r| last(r, |f| vec![(BLUE_1, match f {
        Family::V4 => arp_request(mac(BLUE_1), Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 2)),
        Family::V6 => neighbor_solicitation(mac(BLUE_1), "fd00::3".parse().unwrap(), "fd00::2".parse().unwrap()),
    })]);
    arp_unknown_address ArpUnknownAddress |r| last(r, |_| vec![
        (BLUE_1, arp_request(mac(BLUE_1), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 99))),
    ]);
    nd_unknown_address NdUnknownAddress |r| last(r, |_| {
        let own: Ipv6Addr = "fd00::1".parse().unwrap();
        vec![(BLUE_1, neighbor_solicitation(mac(BLUE_1), own, "fd00::99".parse().unwrap()))]
    });
    acl_out_denied AclOutDenied |r| last(r, |f| vec![
        (BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.host(2)).ports(1000, 600))),
    ]);
    acl_in_denied AclInDenied |r| last(r, |f| vec![
        (BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.host(2)).ports(1000, 604))),
    ]);
    no_route NoRoute |r| last(r, |f| vec![(BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.of("10.77.0.1"))))]);
    route_drop RouteDrop |r| last(r, |f| vec![(BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.of("10.66.0.1"))))]);
    no_mapping NoMapping |r| last(r, |f| vec![(BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.host(99))))]);
    same_eni SameEni |r| last(r, |f| vec![(BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.host(1))))]);
    tcp_no_connection TcpNoConnection |r| last(r, |f| vec![(BLUE_1, tcp(f, ACK, 1, 1))]);
    tcp_state_invalid TcpStateInvalid |r| last(r, |f| vec![(BLUE_1, tcp(f, SYN, 1, 0)), (BLUE_1, tcp(f, ACK, 2, 1))]);
    tcp_window_invalid TcpWindowInvalid |r| last(r, |f| {
        let answer = Build::tcp(f.host(2), f.host(1)).ports(80, 1000).flags(SYN | ACK);
        vec![(BLUE_1, tcp(f, SYN, 1, 0)), (BLUE_2, from(BLUE_2, answer.numbers(9, 7777)))]
    });
    icmp_no_connection IcmpNoConnection |r| last(r, |f| vec![
        (BLUE_1, from(BLUE_1, Build::echo_reply(f.host(1), f.host(2), 1, 1))),
    ]);
    icmp_error_no_connection IcmpErrorNoConnection |r| last(r, |f| vec![
        (BLUE_2, from(BLUE_2, Build::unreachable(f.host(2), &udp(f)))),
    ]);
    connection_table_full ConnectionTableFull |r| {
        for mut bench in [changed(|c| c.max_connections = 1), host_only(|c| c.max_connections = 1)] {
            assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Sent(BLUE_2));
            let Fate::Dropped(why, _) = bench.send(BLUE_1, &udp(Family::V6)[..]).fate else { panic!("{r}") };
            assert_eq!(why, r);
            assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Sent(BLUE_2), "the first stays");
        }
    };
    miss_policy_drop MissPolicyDrop |r| {
        let mut bench = host_only(|c| c.miss_policy = MissPolicy::Drop);
        let asked = arp_request(mac(BLUE_1), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        for frame in [udp(Family::V4), udp(Family::V6), asked] {
            assert_eq!(bench.send(BLUE_1, &frame[..]).fate, Fate::Dropped(r, "worker-0".into()));
        }
    };
    host_path_over_capacity HostPathOverCapacity |r| {
        // One ENI's queue at the host path.
        let mut bench = host_only(|c| c.host_queue = 2);
        many(&bench, 5);
        bench.rest();
        assert_eq!((bench.drops(r), bench.take(BLUE_2).len()), (3, 2));
        // The ring to it: its other end is not served in between.
        let mut bench = host_only(|c| c.ring = 8);
        many(&bench, 20);
        bench.rest();
        assert_eq!((bench.drops(r), bench.take(BLUE_2).len()), (12, 8));
        assert_eq!(bench.reports()[0].ledger.left.drops[r.index()].frames, 12, "by the worker");
    };
    hand_over_full HandOverFull |r| {
        let mut bench = changed(|c| (c.workers, c.ring) = (2, 8));
        many(&bench, 60);
        bench.rest();
        let over = bench.drops(r);
        let handed = bench.reports()[0].ledger.left.worker.frames;
        assert_eq!(handed, 8, "as many as there is room for");
        assert!(over > 0, "of 60 connections the other worker owns more than that");
        assert_eq!(bench.take(BLUE_2).len() as u64, 60 - over);
    };
    egress_mtu_exceeded EgressMtuExceeded |r| last(r, |f| vec![
        (BLUE_1, udp(f)),
        (BLUE_1, from(BLUE_1, Build::udp(f.host(1), f.host(2)).ports(1000, 9).payload(1473))),
    ]);
    frame_too_large FrameTooLarge |r| early(r, [edit(udp(Family::V4), |f| f.resize(LARGE + 1, 0))]);
    port_rx_no_buffer PortRxNoBuffer |r| {
        let mut bench = changed(|c| (c.small_buffers, c.large_buffers) = (3, 0));
        many(&bench, 5);
        bench.rest();
        assert_eq!((bench.drops(r), bench.take(BLUE_2).len()), (2, 3));
        assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Sent(BLUE_2), "they came home");
    };
    port_rx_kernel PortRxKernel |r| {
        let mut received = Received::default();
        received.dropped.kernel = THREE;
        undelivered(r, received, THREE);
    };
    port_rx_error PortRxError |r| {
        let mut received = Received::default();
        received.dropped.error = THREE;
        undelivered(r, received, THREE);
    };
    port_tx_full PortTxFull |r| {
        let mut bench = Bench::with(Setup { config: config(), queue: 4 });
        bench.load(&tenants());
        bench.arm(&ENIS);
        many(&bench, 4);
        bench.rest();
        bench.push(BLUE_1, &udp(Family::V4)[..]);
        bench.rest();
        assert_eq!((bench.drops(r), bench.take(BLUE_2).len()), (1, 4));
    };
    port_tx_error PortTxError |r| {
        let mut bench = failing(Received::default());
        let outcome = bench.send(BLUE_1, Packet::from(&udp(Family::V4)[..]));
        assert_eq!(outcome.fate, Fate::Dropped(r, "worker-0".into()));
    };
    port_down PortDown |r| {
        let mut bench = changed(|_| {});
        bench.ports[BLUE_2][0].set_down(true);
        assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Dropped(r, "worker-0".into()));
        bench.ports[BLUE_2][0].set_down(false);
        assert_eq!(bench.send(BLUE_1, &udp(Family::V4)[..]).fate, Fate::Sent(BLUE_2));
    };
}
