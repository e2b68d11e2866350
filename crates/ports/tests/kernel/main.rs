//! TAP and AF_PACKET ports against the kernel, with real sockets on both sides.
//!
//! Runs in network namespaces of its own, as root or in a user namespace. It has no harness,
//! since a process must have one thread to enter one.

mod net;
mod traffic;
mod wire;

use std::net::Ipv4Addr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use net::Namespace;
use packet::{Batch, Count, DropReason, Pool};
use ports::{Bare, Outcomes, Port, PortError, PortInfo, PortKind, PortSpec, TxOutcome, open};
use traffic::{tcp_transfer, udp_flood, udp_segments};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn spec(kind: PortKind, interface: &str) -> PortSpec {
    PortSpec { name: interface.into(), kind, interface: interface.into(), queues: 1, mtu: 1500 }
}

/// Opens a port of one queue.
fn one(spec: &PortSpec) -> (PortInfo, Box<dyn Port>) {
    let (info, mut queues) = open(spec).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(queues.len(), 1);
    (info, queues.remove(0))
}

/// Two hosts, each with an interface `host`, and the device's ports to them.
struct Bench {
    hosts: [Namespace; 2],
    ports: Vec<Box<dyn Port>>,
}

/// Veths `w0` and `w1` whose other ends are the hosts' interfaces.
fn veths() -> [Namespace; 2] {
    let hosts = [Namespace::new(), Namespace::new()];
    for (host, (ours, address)) in hosts.iter().zip([("w0", A), ("w1", B)]) {
        net::veth(ours, "host", host);
        net::quiet_up(ours);
        host.run(|| net::address("host", address));
    }
    hosts
}

fn bench(kind: PortKind) -> Bench {
    match kind {
        PortKind::Tap => {
            let hosts = [Namespace::new(), Namespace::new()];
            let mut ports = Vec::new();
            for (host, address) in hosts.iter().zip([A, B]) {
                let (info, port) = one(&spec(kind, "host"));
                assert_eq!((info.mtu, info.kind), (1500, kind));
                net::move_link("host", host);
                host.run(|| net::address("host", address));
                ports.push(port);
            }
            Bench { hosts, ports }
        }
        _ => {
            let hosts = veths();
            let ports = ["w0", "w1"].map(|name| one(&spec(kind, name)).1).into();
            Bench { hosts, ports }
        }
    }
}

impl Bench {
    fn forward<T>(mut self, during: impl FnOnce(&[Namespace; 2]) -> T) -> (wire::Seen, T) {
        let (b, a) = (self.ports.pop().unwrap(), self.ports.pop().unwrap());
        wire::forward(a, b, || during(&self.hosts))
    }
}

fn udp_arrives_in_both_directions(kind: PortKind) {
    let (seen, (there, back)) =
        bench(kind).forward(|[a, b]| (udp_flood(a, b, B, 500), udp_flood(b, a, A, 500)));
    assert_eq!((there, back), (500, 500));
    assert!(seen.ledger.left.port.frames >= 1000);
    assert_eq!(seen.ledger.drops().next(), None);
}

fn a_udp_super_frame_stays_one_and_arrives_in_pieces(kind: PortKind) {
    let (seen, datagrams) = bench(kind).forward(|[a, b]| udp_segments(a, b, B, 1400, 40));
    assert_eq!(datagrams, vec![1400; 40]);
    assert_eq!(seen.udp_gso, [(1400, 14 + 20 + 8 + 40 * 1400)]);
    assert!(seen.wire.packets >= 40 && seen.wire.bytes >= 40 * (14 + 20 + 8 + 1400));
}

fn a_tcp_transfer_arrives_intact_in_super_frames(kind: PortKind) {
    const BYTES: usize = 32 << 20;
    let (seen, same) = bench(kind).forward(|[a, b]| tcp_transfer(a, b, B, BYTES));
    assert!(same, "the bytes received are those sent");
    assert!(seen.tcp_gso > 0, "super-frames were seen");
    assert!(seen.partial >= seen.tcp_gso, "their checksums are partial");
    let segments = (BYTES / 1448) as u64;
    assert!(seen.wire.packets > segments, "{} wire packets", seen.wire.packets);
    assert!(seen.wire.bytes > BYTES as u64 + segments * 66);
    assert!(seen.wire.frames < segments / 4, "{} frames stay super-frames", seen.wire.frames);
}

fn a_kernel_drop_is_counted() {
    let [host, _other] = veths();
    let (_, mut port) = one(&spec(PortKind::AfPacket, "w0"));
    let frame = [0x02; 60];
    const SENT: u64 = 1000;
    host.run(|| (0..SENT).for_each(|_| net::send_raw("host", &frame)));
    let (mut pool, mut batch) = (Pool::new(64, 0).unwrap(), Batch::new());
    let (mut frames, mut dropped) = (0, 0);
    loop {
        let received = port.receive(&mut pool, &mut batch, 5);
        frames += received.frames as u64;
        dropped += received.dropped.kernel.frames;
        for i in 0..batch.len() {
            let taken = batch.take(i).unwrap();
            assert_eq!((taken.data(), taken.meta().rx_time), (frame.as_slice(), 5));
            pool.free(taken);
        }
        batch.finish();
        if received.frames == 0 {
            break;
        }
    }
    assert!(frames > 0 && dropped > 0, "{frames} frames, {dropped} dropped");
    assert_eq!(frames + dropped, SENT);
}

fn without_buffers_frames_are_dropped_by_name(kind: PortKind) {
    let Bench { hosts, mut ports } = bench(kind);
    let frame = [0x02; 100];
    hosts[0].run(|| (0..20).for_each(|_| net::send_raw("host", &frame)));
    let (mut pool, mut batch) = (Pool::new(8, 0).unwrap(), Batch::new());
    let mut dropped = Count::ZERO;
    let mut frames = 0;
    for _ in 0..3 {
        let received = ports[0].receive(&mut pool, &mut batch, 0);
        frames += received.frames as u64;
        let named: Vec<_> = received.dropped.iter().collect();
        assert!(named.iter().all(|(reason, _)| *reason == DropReason::PortRxNoBuffer));
        dropped += named.into_iter().map(|(_, count)| count).sum();
    }
    assert_eq!(frames + dropped.frames, 20);
    assert!(dropped.frames >= 12, "{dropped:?}");
    batch.iter().for_each(|(_, f)| assert_eq!(f.data(), frame));
    (0..batch.len()).for_each(|i| pool.free(batch.take(i).unwrap()));
    assert_eq!(batch.finish(), 0);
}

fn a_vlan_tag_is_put_back() {
    let [host, _other] = veths();
    let (_, mut port) = one(&spec(PortKind::AfPacket, "w0"));
    let mut frame = [0u8; 64];
    frame[..6].copy_from_slice(&[0x02, 1, 2, 3, 4, 5]);
    frame[6..12].copy_from_slice(&[0x02, 9, 9, 9, 9, 9]);
    frame[12..18].copy_from_slice(&[0x81, 0x00, 0x60, 0x07, 0x08, 0x00]);
    frame[18..].fill(0x55);
    host.run(|| net::send_raw("host", &frame));
    let (mut pool, mut batch) = (Pool::new(4, 0).unwrap(), Batch::new());
    assert_eq!(port.receive(&mut pool, &mut batch, 0).frames, 1);
    let got = batch.take(0).unwrap();
    assert_eq!(got.data(), frame);
    pool.free(got);
}

fn send_one(port: &mut dyn Port, pool: &mut Pool) -> TxOutcome {
    let mut batch = Batch::new();
    batch.push(pool.copy_from(&[0x02; 60]).unwrap()).unwrap();
    let mut outcomes: Outcomes = [TxOutcome::Sent; _];
    port.transmit(&mut batch, &mut outcomes);
    let frame = batch.take(0).unwrap();
    assert_eq!(frame.data(), [0x02; 60], "the frame is as it was");
    pool.free(frame);
    outcomes[0]
}

fn a_link_that_is_down_has_a_name(kind: PortKind) {
    let Bench { hosts, mut ports } = bench(kind);
    let (mut pool, mut batch) = (Pool::new(4, 2).unwrap(), Batch::new());
    let port = &mut *ports[0];
    let set = |up: bool| match (kind, up) {
        (PortKind::Tap, true) => hosts[0].run(|| net::set_up("host")).unwrap(),
        (PortKind::Tap, false) => hosts[0].run(|| net::set_down("host")).unwrap(),
        (_, true) => net::set_up("w0").unwrap(),
        (_, false) => net::set_down("w0").unwrap(),
    };
    assert_eq!(send_one(port, &mut pool), TxOutcome::Sent);
    set(false);
    assert_eq!(send_one(port, &mut pool), TxOutcome::Dropped(DropReason::PortDown));
    // After some empty rounds nobody is woken for nothing.
    for _ in 0..200 {
        assert_eq!(port.receive(&mut pool, &mut batch, 0).frames, 0);
    }
    assert!(!wire::poll(&[port.wait_fd()], 0), "a link that is down wakes nobody");
    set(true);
    assert_eq!(send_one(port, &mut pool), TxOutcome::Sent);
    hosts[0].run(|| net::send_raw("host", &[0x02; 60]));
    assert!(wire::poll(&[port.wait_fd()], 1000));
    assert_eq!(port.receive(&mut pool, &mut batch, 0).frames, 1);
    pool.free(batch.take(0).unwrap());
    batch.finish();
}

fn a_tap_whose_namespace_ended_is_not_waited_for() {
    let Bench { hosts, mut ports } = bench(PortKind::Tap);
    drop(hosts);
    let (mut pool, mut batch) = (Pool::new(4, 2).unwrap(), Batch::new());
    let ended = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while ports[0].wait_fd().is_some() {
        assert!(std::time::Instant::now() < ended, "the interface ends with its namespace");
        wire::poll(&[ports[0].wait_fd()], 100);
        ports[0].receive(&mut pool, &mut batch, 0);
    }
    assert_eq!(send_one(&mut *ports[0], &mut pool), TxOutcome::Dropped(DropReason::PortDown));
}

fn queues_share_an_interface_by_connection(kind: PortKind) {
    let host = Namespace::new();
    let two = PortSpec { queues: 2, ..spec(kind, "w0") };
    let mut queues = match kind {
        PortKind::Tap => {
            let (info, queues) = open(&two).unwrap();
            assert_eq!(info.queues, 2);
            net::move_link("w0", &host);
            host.run(|| net::address("w0", A));
            queues
        }
        _ => {
            net::veth("w0", "host", &host);
            net::quiet_up("w0");
            host.run(|| net::address("host", A));
            open(&two).unwrap().1
        }
    };
    assert_eq!(queues.len(), 2);
    let name = if kind == PortKind::Tap { "w0" } else { "host" };
    host.run(|| (0..32).for_each(|flow| (0..3).for_each(|_| net::send_raw(name, &traffic::udp_frame(flow)))));
    let (mut pool, mut batch) = (Pool::new(128, 8).unwrap(), Batch::new());
    let mut flows: [Vec<u8>; 2] = Default::default();
    for (queue, flows) in queues.iter_mut().zip(&mut flows) {
        while queue.receive(&mut pool, &mut batch, 0).frames > 0 {
            for i in 0..batch.len() {
                let frame = batch.take(i).unwrap();
                flows.push(frame.data()[35]);
                pool.free(frame);
            }
            batch.finish();
        }
    }
    assert_eq!(flows[0].len() + flows[1].len(), 96);
    if kind == PortKind::AfPacket {
        assert!(flows.iter().all(|f| !f.is_empty()), "both queues have work");
        assert!(flows[0].iter().all(|f| !flows[1].contains(f)), "a connection stays on its queue");
    }
    drop(queues);
    assert_eq!(pool.outstanding(), 0);
}

fn what_cannot_be_opened_is_said_in_one_line() {
    let hosts = veths();
    let error = |spec: &PortSpec| {
        let error = open(spec).err().expect("refused");
        assert!(!error.to_string().contains('\n'));
        error
    };
    let af_packet = spec(PortKind::AfPacket, "w0");
    assert!(matches!(error(&spec(PortKind::AfPacket, "nowhere")), PortError::NoSuchInterface { .. }));
    assert!(matches!(
        error(&spec(PortKind::AfPacket, "a-name-too-long-for-linux")),
        PortError::NoSuchInterface { .. }
    ));
    assert!(matches!(error(&spec(PortKind::Tap, "")), PortError::NoSuchInterface { .. }));
    assert!(matches!(
        error(&PortSpec { mtu: 9000, ..af_packet.clone() }),
        PortError::MtuMismatch { wanted: 9000, actual: 1500, .. }
    ));
    assert!(matches!(error(&PortSpec { mtu: 67, ..af_packet.clone() }), PortError::MtuInvalid { .. }));
    assert!(matches!(error(&PortSpec { queues: 0, ..af_packet.clone() }), PortError::QueuesInvalid { .. }));
    assert!(matches!(error(&spec(PortKind::Memory, "m")), PortError::MemoryHasNoInterface { .. }));
    net::address("w1", Ipv4Addr::new(192, 0, 2, 1));
    match error(&spec(PortKind::AfPacket, "w1")) {
        PortError::HasAddress { address, .. } => assert_eq!(address, Ipv4Addr::new(192, 0, 2, 1)),
        other => panic!("{other}"),
    }
    if tap_available() {
        assert!(matches!(error(&spec(PortKind::Tap, "w0")), PortError::Busy { .. }), "a veth is no TAP");
        let held = one(&spec(PortKind::Tap, "t0"));
        assert!(matches!(error(&spec(PortKind::Tap, "t0")), PortError::Busy { .. }), "held already");
        drop(held);
        let (info, _port) = one(&PortSpec { mtu: 9000, ..spec(PortKind::Tap, "t0") });
        assert_eq!(info.mtu, 9000, "a TAP gets the MTU");
    }
    drop(hosts);
}

fn the_bare_forwarder_forwards() {
    const BYTES: usize = 64 << 20;
    let [a, b] = veths();
    let mut bare = Bare::open(&spec(PortKind::AfPacket, "w0"), &spec(PortKind::AfPacket, "w1")).unwrap();
    let stop = AtomicBool::new(false);
    let forwarded = std::thread::scope(|scope| {
        let worker = scope.spawn(|| bare.forward(&stop));
        let same = catch_unwind(AssertUnwindSafe(|| tcp_transfer(&a, &b, B, BYTES)));
        stop.store(true, Ordering::Relaxed);
        assert!(same.expect("the transfer"), "the bytes received are those sent");
        worker.join().unwrap()
    });
    assert!(forwarded.received > (BYTES / 65536) as u64);
    assert_eq!(forwarded.refused, 0);
}

fn the_kernel_counts_the_same_frames(kind: PortKind) {
    let (seen, counters) = bench(kind).forward(|[a, b]| {
        assert_eq!(udp_flood(a, b, B, 300), 300);
        [a, b].map(|host| host.run(|| net::counters("host")))
    });
    // Frames that the hosts sent came in, frames that they received went out.
    let sent: u64 = counters.iter().map(|c| c.1).sum();
    let received: u64 = counters.iter().map(|c| c.0).sum();
    assert_eq!(seen.ledger.entered.port.frames, sent);
    assert_eq!(seen.ledger.left.port.frames, received);
}

fn tap_available() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
}

type Row = (&'static str, PortKind, fn(PortKind));

const ROWS: &[Row] = &[
    ("udp both ways", PortKind::AfPacket, udp_arrives_in_both_directions),
    ("udp both ways", PortKind::Tap, udp_arrives_in_both_directions),
    ("udp super-frame", PortKind::AfPacket, a_udp_super_frame_stays_one_and_arrives_in_pieces),
    ("udp super-frame", PortKind::Tap, a_udp_super_frame_stays_one_and_arrives_in_pieces),
    ("tcp transfer", PortKind::AfPacket, a_tcp_transfer_arrives_intact_in_super_frames),
    ("tcp transfer", PortKind::Tap, a_tcp_transfer_arrives_intact_in_super_frames),
    ("kernel's counters", PortKind::AfPacket, the_kernel_counts_the_same_frames),
    ("kernel's counters", PortKind::Tap, the_kernel_counts_the_same_frames),
    ("kernel drop", PortKind::AfPacket, |_| a_kernel_drop_is_counted()),
    ("no buffers", PortKind::AfPacket, without_buffers_frames_are_dropped_by_name),
    ("no buffers", PortKind::Tap, without_buffers_frames_are_dropped_by_name),
    ("vlan tag", PortKind::AfPacket, |_| a_vlan_tag_is_put_back()),
    ("link down", PortKind::AfPacket, a_link_that_is_down_has_a_name),
    ("link down", PortKind::Tap, a_link_that_is_down_has_a_name),
    ("namespace ended", PortKind::Tap, |_| a_tap_whose_namespace_ended_is_not_waited_for()),
    ("two queues", PortKind::AfPacket, queues_share_an_interface_by_connection),
    ("two queues", PortKind::Tap, queues_share_an_interface_by_connection),
    ("refusals", PortKind::AfPacket, |_| what_cannot_be_opened_is_said_in_one_line()),
    ("bare forwarder", PortKind::AfPacket, |_| the_bare_forwarder_forwards()),
];

fn main() -> ExitCode {
    // Test runners ask for a list and pass filters; only a filter by name is understood here.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let filter = arguments.iter().find(|a| !a.starts_with('-'));
    if let Err(e) = net::enter() {
        println!("skipped: no network namespace of our own: {e}");
        return ExitCode::SUCCESS;
    }
    let tap = tap_available();
    let mut failed = 0;
    for (name, kind, test) in ROWS {
        let name = format!("{} {name}", kind.code());
        if filter.is_some_and(|f| !name.contains(f.as_str())) {
            continue;
        }
        if *kind == PortKind::Tap && !tap {
            println!("kernel: {name} ... skipped: /dev/net/tun is closed to this user");
            continue;
        }
        // Each row has a namespace of its own for the device.
        let result = catch_unwind(|| Namespace::new().run(|| test(*kind)));
        println!("kernel: {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        failed += usize::from(result.is_err());
    }
    ExitCode::from(u8::from(failed > 0))
}
