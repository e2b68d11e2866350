//! Step 7: the controller dies and comes back; traffic does not notice.

use super::Step;
use super::measure::longest_gap;
use super::out::ms;
use super::world::World;
use crate::error::LabError;
use crate::traffic::{Amount, TcpSend, TcpServer, UdpReceiver, UdpSend, now};
use std::net::SocketAddr;
use std::time::Duration;

pub(super) const STEP: Step = Step {
    title: "the controller is killed; traffic goes on, and it finds back",
    explanation: "SIGKILL ends the controller in the middle of a transfer. The device forwards by what it has. The supervisor starts the
        controller again, which reads back what the device holds and finds no difference to what is wanted.",
    run,
};

/// Bytes per second of the transfer.
const RATE: u64 = 20_000_000;
const DATAGRAMS: u32 = 2000;
/// Longest time without a byte, ns.
const GAP: u64 = 200_000_000;
/// When the new controller must have found no difference.
const BOUND: Duration = Duration::from_secs(5);

fn run(world: &mut World) -> Result<(), LabError> {
    world.start_main("the laboratory's configuration again")?;
    let address = world.address("blue-2", false)?;
    let target = SocketAddr::new(address, 5001);
    let server = TcpServer::start(world.host("blue-2")?, target)?;
    let send = TcpSend { rate: Some(RATE), ..TcpSend::new(target, Amount::UntilStopped) };
    let send = send.start(world.host("blue-1")?)?;
    let target = SocketAddr::new(address, 5003);
    let receiver = UdpReceiver::start(world.host("blue-2")?, target, false)?;
    let datagrams = UdpSend { rate: DATAGRAMS, ..UdpSend::new(target) }.start(world.host("blue-1")?)?;
    world.sleep(Duration::from_millis(500))?;

    let began = now();
    let old = world.daemon()?.kill_controller()?;
    let mut alone = 0;
    let reconciled = world.wait(BOUND, || {
        let daemon = world.daemon()?;
        alone += u32::from(!daemon.status()?.controller);
        let restarted = daemon.controller_pid().is_some_and(|pid| pid != old);
        // A controller that starts does not answer yet.
        Ok(restarted && daemon.diff().is_ok_and(|d| d.known && d.lines.is_empty()))
    })?;
    let took = now() - began;
    world.sleep(Duration::from_millis(500))?;

    let end = now();
    let sent = send.stop()?;
    let numbered = datagrams.stop()?;
    world.sleep(Duration::from_millis(50))?;
    let (streams, overflowed) = receiver.stop()?;
    let received = server.stop()?;
    let new = world.daemon()?.controller_pid().unwrap_or(0);
    world.out.check(
        reconciled && alone > 0,
        "the controller is back, and nothing differs",
        format!("another process, `diff` empty within {} s", BOUND.as_secs()),
        format!(
            "process {old} killed, process {new} runs; diff {} after {}; meanwhile the device answered {alone} times without one",
            if reconciled { "empty" } else { "NOT empty" },
            ms(took)
        ),
        "diff, status",
    );
    let gap =
        received.first().map_or(u64::MAX, |c| longest_gap(&c.series.samples(), began - 300_000_000, end));
    world.out.check(
        sent.verified() && gap <= GAP,
        "the transfer never stopped",
        format!("every byte with its digest, never {} without one", ms(GAP)),
        format!(
            "{} bytes, {}, longest gap {}",
            sent.bytes,
            if sent.verified() { "digest the same" } else { "digest NOT the same" },
            ms(gap)
        ),
        "both ends",
    );
    let arrived: u64 = streams.iter().map(|s| s.received).sum();
    world.out.check(
        arrived + overflowed == numbered.sent && arrived > 0,
        "no datagram was lost",
        format!("{} of {}", numbered.sent, numbered.sent),
        format!("{arrived} of {} arrived, {overflowed} dropped at the receiver's own socket", numbered.sent),
        "both ends",
    );
    Ok(())
}
