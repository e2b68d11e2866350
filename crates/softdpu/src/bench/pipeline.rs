//! `softdpu bench pipeline`: one worker between two memory ports, so that only the device's own work is measured.
//!
//! The receive side copies frames of established UDP connections, both directions of each in an order of its own, into pool
//! buffers; the transmit side lets them go. The policy is that of [`policy`](super::policy): every connection
//! was judged through two ACL stages, by the last rule of each. Rules are consulted for first packets only, so speed does
//! not depend on their number, and the measurement fails unless every measured frame hit in the flow table.

use super::policy::{self, Side};
use crate::args::{Output, PipelineArgs};
use crate::failure::{Failure, Result};
use crate::output::{pairs, print};
use device::run::monotonic;
use device::{Config, HostPath, PortDescription, SoftDevice, Stage, Worker};
use model::Profile;
use ports::{Packet, Port, Preloaded};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use wire::ethernet::{self, MacAddr, ethertype};
use wire::ip::protocol;
use wire::{ipv4, udp};

/// Sizes that can be asked for: what Ethernet asks at least, and a jumbo frame.
const SIZES: std::ops::RangeInclusive<usize> = 60..=9014;
/// Connections that can be asked for.
const CONNECTIONS: std::ops::RangeInclusive<u32> = 1..=4 << 20;
/// Polls between two looks at a clock or an account.
const ROUND: u32 = 64;
/// The longest warm-up.
const WARM_UP: Duration = Duration::from_secs(30);
/// How long stages are timed, after the speed itself was measured.
const STAGES: Duration = Duration::from_secs(1);
const HEADERS: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;

const SIDES: [Side; 2] = [
    Side { mac: [2, 0, 0, 0, 0, 1], prefix: (Ipv4Addr::new(10, 0, 0, 0), 9) },
    Side { mac: [2, 0, 0, 0, 0, 2], prefix: (Ipv4Addr::new(10, 128, 0, 0), 9) },
];

/// What was measured.
#[derive(Serialize)]
struct Measured {
    /// Millions of frames per second of wall time.
    mpps_wall: f64,
    /// Millions of frames per second of the worker's CPU time.
    mpps_cpu: f64,
    /// CPU time per frame.
    ns_per_packet: f64,
    frames: u64,
    flow_hits: u64,
    connections: u32,
    rules: u32,
    size: usize,
    stages: Vec<StageShare>,
}

/// A stage's share of the worker's time, 0 to 1.
#[derive(Serialize)]
struct StageShare {
    name: &'static str,
    share: f64,
}

/// Measures and prints.
pub fn pipeline(args: &PipelineArgs, output: Output) -> Result {
    let bad = |what: String| Err(Failure::usage(what));
    if !SIZES.contains(&args.size) {
        return bad(format!("--size {}: {} to {} bytes", args.size, SIZES.start(), SIZES.end()));
    }
    if !CONNECTIONS.contains(&args.connections) || args.rules == 0 {
        return bad(format!("--connections: 1 to {}; --rules: at least 1", CONNECTIONS.end()));
    }
    let seconds = match Duration::try_from_secs_f64(args.seconds) {
        Ok(seconds) if !seconds.is_zero() => seconds,
        _ => return bad(format!("--seconds {}: a time above 0", args.seconds)),
    };
    let mut rig = Rig::build(args)?;
    pin();
    rig.warm_up(args.connections)?;

    let (before, started) = (rig.worker.report(), Instant::now());
    rig.run(seconds);
    let (wall, after) = (started.elapsed(), rig.worker.report());
    rig.worker.measure(monotonic);
    rig.run(seconds.min(STAGES));
    let times = rig.worker.stage_times();

    let frames = after.ledger.entered.port.frames - before.ledger.entered.port.frames;
    let flow_hits = after.flow_hits - before.flow_hits;
    let sent = after.ledger.left.port.frames - before.ledger.left.port.frames;
    if flow_hits != frames || sent != frames {
        return Err(Failure::new(format!(
            "of {frames} frames {flow_hits} hit in the flow table and {sent} were sent: this is no measurement of the fast path"
        )));
    }
    let (frames_f, cpu) = (frames as f64, (after.cpu_ns - before.cpu_ns) as f64);
    let total = times.iter().sum::<u64>().max(1) as f64;
    let shares =
        Stage::ALL.iter().zip(times).map(|(s, t)| StageShare { name: s.name(), share: t as f64 / total });
    let measured = Measured {
        mpps_wall: frames_f * 1e-6 / wall.as_secs_f64(),
        mpps_cpu: frames_f * 1e3 / cpu,
        ns_per_packet: cpu / frames_f,
        frames,
        flow_hits,
        connections: args.connections,
        rules: args.rules,
        size: args.size,
        stages: shares.collect(),
    };
    print(output, &measured, table)
}

fn table(m: &Measured) -> String {
    let mut lines = vec![
        ("connections", m.connections.to_string()),
        ("rules", format!("{} in each of two stages", m.rules)),
        ("frame size", format!("{} bytes", m.size)),
        ("frames", format!("{}, all of them hits in the flow table", m.frames)),
        ("speed", format!("{:.2} Mpps per CPU-second, {:.2} Mpps by the clock", m.mpps_cpu, m.mpps_wall)),
        ("per packet", format!("{:.1} ns", m.ns_per_packet)),
    ];
    let stages = m.stages.iter();
    lines.extend(
        stages.map(|s| (s.name, format!("{:5.1} %  {:6.1} ns", s.share * 100.0, s.share * m.ns_per_packet))),
    );
    pairs(&lines)
}

/// A device of one worker and two memory ports.
struct Rig {
    device: SoftDevice,
    worker: Worker,
    host_path: HostPath,
}

impl Rig {
    fn build(args: &PipelineArgs) -> Result<Rig> {
        let mut random = Random(0x5eed);
        let queues = [0, 1].map(|side| -> Result<Vec<Box<dyn Port>>> {
            let mut order: Vec<u32> = (0..args.connections).collect();
            random.shuffle(&mut order);
            let packets = order.iter().map(|&n| frame(n, side, args.size)).collect::<Result<_>>()?;
            Ok(vec![Box::new(Preloaded::new(packets))])
        });
        let [a, b] = queues;
        let description = |name: &str| PortDescription {
            name: name.into(),
            kind: "memory".into(),
            interface: String::new(),
            mtu: *SIZES.end() as u32,
        };
        let mut config = Config::new(Profile::default(), vec![description("a"), description("b")]);
        config.max_connections = config.max_connections.max(args.connections as usize);
        let (mut device, workers, host_paths) = device::build(config, vec![a?, b?])
            .map_err(|e| Failure::new(format!("the device's memory: {e}")))?;
        policy::install(&mut device, SIDES, args.rules)?;
        let first = || Failure::new("the device has no worker");
        Ok(Rig {
            device,
            worker: workers.into_iter().next().ok_or_else(first)?,
            host_path: host_paths.into_iter().next().ok_or_else(first)?,
        })
    }

    /// Polls until the device has all connections and the host path none.
    fn warm_up(&mut self, connections: u32) -> Result {
        let started = Instant::now();
        loop {
            for _ in 0..ROUND {
                self.worker.poll(monotonic());
                self.host_path.poll(monotonic());
                self.device.poll(monotonic());
            }
            let report = self.worker.report();
            if report.device == u64::from(connections) && report.pending == 0 {
                return Ok(());
            }
            if started.elapsed() > WARM_UP {
                let text = format!("the device learned {} of {connections} connections", report.device);
                let punts = report.ledger.punts().map(|(reason, count)| format!("{} {reason}", count.frames));
                let drops = report.ledger.drops().map(|(reason, count)| format!("{} {reason}", count.frames));
                let others = punts.chain(drops).collect::<Vec<_>>().join(", ");
                return Err(Failure::new(format!(
                    "{text} in {} s; other frames: {others}",
                    WARM_UP.as_secs()
                )));
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = monotonic() + time.as_nanos() as u64;
        while monotonic() < end {
            for _ in 0..ROUND {
                self.worker.poll(monotonic());
            }
        }
    }
}

/// Keeps this thread on the CPU where it is.
fn pin() {
    let mut set = CpuSet::new();
    set.set(sched_getcpu());
    // Refused: the measurement is noisier, not wrong.
    let _ = sched_setaffinity(None, &set);
}

/// A frame of connection `n` that comes in on the port of `side`.
fn frame(n: u32, side: usize, size: usize) -> Result<Packet> {
    let host = |side: usize, n: u32| Ipv4Addr::from(u32::from(SIDES[side].prefix.0) + 1 + n % 4096);
    let ends = [(host(0, n), 1024 + (n / 4096) as u16), (host(1, n / 7), 443)];
    let ((src, src_port), (dst, dst_port)) = (ends[side], ends[1 - side]);
    let mut bytes = vec![0; size];
    let payload = vec![0; size - HEADERS];
    let (link, packet) = bytes.split_at_mut(ethernet::HEADER_LEN);
    let (network, transport) = packet.split_at_mut(ipv4::HEADER_LEN);
    let header = ethernet::Header {
        dst: MacAddr(SIDES[1 - side].mac),
        src: MacAddr(SIDES[side].mac),
        ethertype: ethertype::IPV4,
    };
    header.emit(link).map_err(Failure::new)?;
    let len = size - ethernet::HEADER_LEN - ipv4::HEADER_LEN;
    ipv4::Header::new(src, dst, protocol::UDP, len).emit(network).map_err(Failure::new)?;
    let header = udp::Header { src_port, dst_port };
    header.emit(transport, src.into(), dst.into(), &payload).map_err(Failure::new)?;
    Ok(Packet::from(bytes.as_slice()))
}

/// The same shuffles in every run (xorshift64, Marsaglia).
struct Random(u64);

impl Random {
    fn shuffle(&mut self, values: &mut [u32]) {
        for i in (1..values.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            values.swap(i, (self.0 % (i as u64 + 1)) as usize);
        }
    }
}
