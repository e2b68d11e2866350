//! Step 2: hosts of one tenant reach each other, and the device itself carries their frames.

use super::Step;
use super::out::{ms, rate};
use super::world::World;
use crate::error::LabError;
use crate::traffic::{Amount, Ping, TcpSend, TcpServer, UdpReceiver, UdpSend};
use contract::report::Status;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) const STEP: Step = Step {
    title: "blue-1 and blue-2 talk: ping, UDP, and 100 MB over TCP",
    explanation: "Real programs on real sockets, over IPv4 and IPv6. The first packet of a connection is judged by the tables, all
        that follow hit in the device's flow table: at least 99 of 100 frames of the transfer, acknowledgements included.",
    run,
};

/// Bytes of the transfer.
const TRANSFER: u64 = 100_000_000;
/// Frames that must hit in the device's flow table, in percent.
const HITS: f64 = 99.0;
const PINGS: u16 = 5;
const DATAGRAMS: u64 = 100;

fn run(world: &mut World) -> Result<(), LabError> {
    world.start_main("the laboratory's configuration")?;
    for v6 in [false, true] {
        ping(world, v6)?;
        udp(world, v6)?;
    }
    tcp(world)
}

fn version(v6: bool) -> &'static str {
    if v6 { "IPv6" } else { "IPv4" }
}

fn ping(world: &mut World, v6: bool) -> Result<(), LabError> {
    let ping = Ping { count: PINGS, ..Ping::new(world.address("blue-2", v6)?) };
    let report = ping.start(world.host("blue-1")?)?.join()?;
    world.out.check(
        report.received == u64::from(PINGS) && report.wrong == 0 && report.duplicates == 0,
        format!("ping over {}", version(v6)),
        format!("{PINGS} of {PINGS} answered"),
        format!("{} answered, median {}", report.received, ms(report.median().unwrap_or(0))),
        "blue-1's socket",
    );
    Ok(())
}

fn udp(world: &mut World, v6: bool) -> Result<(), LabError> {
    let target = SocketAddr::new(world.address("blue-2", v6)?, 5000);
    let receiver = UdpReceiver::start(world.host("blue-2")?, target, true)?;
    let send = UdpSend { count: Some(DATAGRAMS), echo: Some(Duration::from_secs(1)), ..UdpSend::new(target) };
    let sent = send.start(world.host("blue-1")?)?.join()?;
    let (streams, _) = receiver.stop()?;
    let received: u64 = streams.iter().map(|s| s.received).sum();
    world.out.check(
        (sent.sent, received, sent.echoed) == (DATAGRAMS, DATAGRAMS, DATAGRAMS),
        format!("UDP over {}", version(v6)),
        format!("{DATAGRAMS} received, {DATAGRAMS} echoes back"),
        format!("{received} received, {} echoes back", sent.echoed),
        "both sockets",
    );
    Ok(())
}

fn tcp(world: &mut World) -> Result<(), LabError> {
    let target = SocketAddr::new(world.address("blue-2", false)?, 5001);
    let server = TcpServer::start(world.host("blue-2")?, target)?;
    let before = world.daemon()?.status()?;
    let send = TcpSend::new(target, Amount::Bytes(TRANSFER)).start(world.host("blue-1")?)?;
    while !send.is_finished() {
        let done = server.connections().first().map_or(0, |c| c.bytes);
        world.out.progress("transfer", done, TRANSFER);
        world.sleep(Duration::from_millis(20))?;
    }
    world.out.progress("transfer", TRANSFER, TRANSFER);
    let sent = send.join()?;
    let received = server.stop()?;
    let after = world.daemon()?.status()?;
    let bytes = received.first().map_or(0, |c| c.bytes);
    world.out.check(
        sent.verified() && sent.bytes == TRANSFER,
        "a TCP transfer of 100 MB arrives whole",
        format!("{TRANSFER} bytes with the digest of what was sent"),
        format!(
            "{bytes} bytes, digest {} ({})",
            if sent.verified() { "the same" } else { "NOT the same" },
            rate(sent.bits_per_second())
        ),
        "both ends",
    );
    let frames = after.rx.frames - before.rx.frames;
    let hits = after.flow_hits - before.flow_hits;
    let percent = hits as f64 * 100.0 / frames.max(1) as f64;
    world.out.check(
        percent >= HITS,
        "the device's flow table carries the transfer",
        format!("at least {HITS} % of its frames, first ones and acknowledgements counted"),
        format!(
            "{percent:.2} %: {hits} of {frames} frames ({} packets on a wire), {} to the host path",
            after.rx.packets - before.rx.packets,
            after.punted - before.punted
        ),
        "status: flow hits, frames received",
    );
    let (device, host) = (cpu(&before, &after, "worker"), cpu(&before, &after, "host-path"));
    world.out.note(format!("CPU time of the transfer: device {}, host path {}", ms(device), ms(host)));
    Ok(())
}

/// CPU time that threads of a kind used between two readings, ns.
fn cpu(before: &Status, after: &Status, kind: &str) -> u64 {
    let sum =
        |s: &Status| s.threads.iter().filter(|t| t.name.starts_with(kind)).map(|t| t.cpu_ns).sum::<u64>();
    sum(after).saturating_sub(sum(before))
}
