//! `softdpu bench tcp`: one TCP stream between two namespaces through the device, through the kernel's bridge, and through a
//! forwarder that does nothing but move frames. All three join the same two veths, in turn, so that a
//! change of the machine's load meets all of them.
//!
//! ```text
//!  host a: eth0 -- to-a  [ device | bridge | forwarder ]  to-b -- eth0 :host b
//! ```
//!
//! Sender and receiver do nothing else than write and read, as iperf3; what counts is what was received.

use super::median;
use super::policy::{self, Side};
use crate::args::{Output, TcpArgs};
use crate::failure::{Failure, Result};
use crate::output::{print, rows};
use device::run::Placement;
use device::{Config, PortDescription};
use lab::{Host, Lab, LabOptions, VethEnd};
use model::Profile;
use ports::{Bare, PortKind, PortSpec};
use serde::Serialize;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one write or read.
const CHUNK: usize = 128 << 10;
/// How long a link, a connection or a stalled stream is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const MTU: u32 = 1500;
/// Rules in each ACL stage of the device.
const RULES: u32 = 100;
/// The interfaces in the device's namespace.
const PORTS: [&str; 2] = ["to-a", "to-b"];
const BRIDGE: &str = "br0";
/// The hosts' ENIs, and their addresses.
const SIDES: [Side; 2] = [
    Side { mac: [2, 0, 0, 0, 0, 1], prefix: (Ipv4Addr::new(10, 0, 0, 0), 9) },
    Side { mac: [2, 0, 0, 0, 0, 2], prefix: (Ipv4Addr::new(10, 128, 0, 0), 9) },
];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 128, 0, 1)];

/// Gbit/s of payload: medians, their ratios, and each round.
#[derive(Serialize)]
struct Measured {
    device_gbps: f64,
    bridge_gbps: f64,
    forwarder_gbps: f64,
    ratio_bridge: f64,
    ratio_forwarder: f64,
    rounds: Vec<Round>,
}

/// Gbit/s of payload.
#[derive(Serialize)]
struct Round {
    device: f64,
    bridge: f64,
    forwarder: f64,
}

/// Measures in a laboratory of its own, and prints. No other thread may run yet.
pub fn tcp(args: &TcpArgs, output: Output) -> Result {
    let seconds = match Duration::try_from_secs_f64(args.seconds) {
        Ok(seconds) if !seconds.is_zero() && args.rounds > 0 => seconds,
        _ => return Err(Failure::usage("--seconds and --rounds: above 0")),
    };
    let options = LabOptions::new(format!("bench-{}", std::process::id()));
    let status = lab::enter(&options, |lab| match measure(lab, seconds, args.rounds, output) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("{}", failure.message);
            failure.status.into()
        }
    });
    match status.map_err(Failure::new)? {
        0 => Ok(()),
        status => Err(Failure { message: String::new(), status: status as u8 }),
    }
}

fn measure(lab: Lab, seconds: Duration, rounds: usize, output: Output) -> Result {
    let bench = Bench::new(lab, seconds)?;
    let mut measured = Vec::new();
    for _ in 0..rounds {
        measured.push(Round {
            device: bench.device()?,
            bridge: bench.bridge()?,
            forwarder: bench.forwarder()?,
        });
        if bench.lab.stop().requested() {
            return Err(Failure::new("stopped"));
        }
    }
    let middle = |pick: fn(&Round) -> f64| median(measured.iter().map(pick).collect());
    let [device, bridge, forwarder] = [middle(|r| r.device), middle(|r| r.bridge), middle(|r| r.forwarder)];
    let measured = Measured {
        device_gbps: device,
        bridge_gbps: bridge,
        forwarder_gbps: forwarder,
        ratio_bridge: device / bridge,
        ratio_forwarder: device / forwarder,
        rounds: measured,
    };
    print(output, &measured, table)
}

fn table(m: &Measured) -> String {
    let row = |name: String, values: [f64; 3]| {
        let [a, b, c] = values.map(|v| format!("{v:.2}"));
        [name, a, b, c]
    };
    let rounds = m.rounds.iter().enumerate();
    let mut lines: Vec<_> =
        rounds.map(|(n, r)| row(format!("round {}", n + 1), [r.device, r.bridge, r.forwarder])).collect();
    lines.push(row("median".into(), [m.device_gbps, m.bridge_gbps, m.forwarder_gbps]));
    let mut text = rows(["Gbit/s", "device", "bridge", "forwarder"], lines, "");
    text += &format!(
        "\nThe device carries {:.2} of the bridge and {:.2} of the bare forwarder.",
        m.ratio_bridge, m.ratio_forwarder
    );
    text
}

struct Bench {
    lab: Lab,
    hosts: [Host; 2],
    seconds: Duration,
}

impl Bench {
    /// Two hosts, each joined to the device's namespace by a veth pair.
    fn new(mut lab: Lab, seconds: Duration) -> Result<Bench> {
        let hosts = [lab.add_host("a").map_err(Failure::new)?, lab.add_host("b").map_err(Failure::new)?];
        let dpu = lab.dpu().map_err(Failure::new)?;
        let mut outer = dpu.netlink().map_err(Failure::new)?;
        for i in 0..2 {
            let (host, name, address) = (&hosts[i], PORTS[i], IpAddr::V4(ADDRESSES[i]));
            let mut inner = host.netlink().map_err(Failure::new)?;
            let near = VethEnd { host, name: "eth0", mac: Some(SIDES[i].mac), mtu: Some(MTU) };
            let mut wire = || {
                outer.add_veth(VethEnd { host: dpu, name, mac: None, mtu: Some(MTU) }, near)?;
                inner.add_address("eth0", address, 8)?;
                inner.set_up("eth0")?;
                outer.set_up(name)?;
                inner.wait_running("eth0", PATIENCE)?;
                outer.wait_running(name, PATIENCE)
            };
            wire().map_err(Failure::new)?;
        }
        Ok(Bench { lab, hosts, seconds })
    }

    /// Through the device: its own threads, one worker and its host path beside it.
    fn device(&self) -> Result<f64> {
        let (mut descriptions, mut queues) = (Vec::new(), Vec::new());
        for spec in specs() {
            let (info, opened) = ports::open(&spec).map_err(Failure::new)?;
            let (name, interface) = (info.name, info.interface);
            descriptions.push(PortDescription {
                name,
                kind: spec.kind.code().into(),
                interface,
                mtu: info.mtu,
            });
            queues.push(opened);
        }
        let config = Config::new(Profile::default(), descriptions);
        let (mut device, workers, host_paths) =
            device::build(config, queues).map_err(|e| Failure::new(format!("the device's memory: {e}")))?;
        policy::install(&mut device, SIDES, RULES)?;
        let directory = self.lab.run_dir();
        let run = |stop: &Arc<AtomicBool>, directory: &Path, ready: &dyn Fn()| {
            let placement = Placement::default();
            device::run::run(device, workers, host_paths, directory, &placement, stop, ready)
                .map_err(Failure::new)
        };
        self.through(|stop, ready| run(stop, directory, ready))
    }

    fn bridge(&self) -> Result<f64> {
        let dpu = self.lab.dpu().map_err(Failure::new)?;
        let mut netlink = dpu.netlink().map_err(Failure::new)?;
        let mut join = || {
            netlink.add_bridge(BRIDGE)?;
            PORTS.into_iter().try_for_each(|port| netlink.set_master(port, BRIDGE))?;
            netlink.set_up(BRIDGE)?;
            netlink.wait_running(BRIDGE, PATIENCE)
        };
        join().map_err(Failure::new)?;
        let speed = self.stream();
        netlink.delete(BRIDGE).map_err(Failure::new)?;
        speed
    }

    fn forwarder(&self) -> Result<f64> {
        let [a, b] = specs();
        let mut bare = Bare::open(&a, &b).map_err(Failure::new)?;
        self.through(|stop, ready| {
            ready();
            bare.forward(stop);
            Ok(())
        })
    }

    /// A stream while `forward` runs on a thread of its own: it says when it is ready, and ends when told to.
    fn through(&self, forward: impl FnOnce(&Arc<AtomicBool>, &dyn Fn()) -> Result + Send) -> Result<f64> {
        let stop = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let its = stop.clone();
            let thread = scope.spawn(move || {
                forward(&its, &|| {
                    // Who waits has not gone away: it waits for this thread, too.
                    let _ = sender.send(());
                })
            });
            // A forwarder that ended without being ready has its error to tell.
            let speed = receiver.recv().ok().map(|()| self.stream());
            stop.store(true, Relaxed);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            speed.unwrap_or_else(|| Err(Failure::new("the forwarder did not start")))
        })
    }

    /// Gbit/s of payload that one stream from `a` to `b` delivers.
    fn stream(&self) -> Result<f64> {
        let failed = |what: &'static str| move |e: std::io::Error| Failure::new(format!("{what}: {e}"));
        let [a, b] = &self.hosts;
        let target = SocketAddr::from((ADDRESSES[1], 5001));
        let listener =
            b.run(|| TcpListener::bind(target)).map_err(Failure::new)?.map_err(failed("listen"))?;
        let connect = a.run(|| TcpStream::connect_timeout(&target, PATIENCE)).map_err(Failure::new)?;
        let mut sender = connect.map_err(failed("connect a to b"))?;
        let (mut receiver, _) = listener.accept().map_err(failed("accept"))?;
        sender.set_write_timeout(Some(PATIENCE)).map_err(failed("set a timeout"))?;
        receiver.set_read_timeout(Some(PATIENCE)).map_err(failed("set a timeout"))?;
        let started = Instant::now();
        let end = started + self.seconds;
        thread::scope(|scope| {
            let sending = scope.spawn(move || -> std::io::Result<()> {
                let chunk = vec![0x5a; CHUNK];
                while Instant::now() < end {
                    sender.write_all(&chunk)?;
                }
                Ok(())
            });
            let received = receive(&mut receiver);
            let elapsed = started.elapsed();
            sending
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .map_err(failed("send"))?;
            Ok(received.map_err(failed("receive"))? as f64 * 8e-9 / elapsed.as_secs_f64())
        })
    }
}

/// Reads to the end; the bytes received.
fn receive(stream: &mut TcpStream) -> std::io::Result<u64> {
    let (mut buffer, mut bytes) = (vec![0; CHUNK], 0);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes += n as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn specs() -> [PortSpec; 2] {
    PORTS.map(|name| PortSpec {
        name: name.into(),
        kind: PortKind::AfPacket,
        interface: name.into(),
        queues: 1,
        mtu: MTU,
    })
}
