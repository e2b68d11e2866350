//! Step 4: the policy changes while traffic runs; what it denies stops, the rest goes on.

use super::Step;
use super::measure::longest_gap;
use super::out::{ms, rate};
use super::policy;
use super::world::World;
use crate::error::LabError;
use crate::traffic::{Amount, TcpSend, TcpServer, now};
use model::AclAction;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) const STEP: Step = Step {
    title: "a policy change under traffic: one connection stops, the other loses nothing",
    explanation: "Two TCP streams run from blue-1 to blue-2, to ports 5001 and 5002. A new configuration denies port 5002. The device judges
        its live connections again: the denied one must stop within a second, the other must not notice.",
    run,
};

const ALLOWED: u16 = 5001;
const DENIED: u16 = 5002;
/// Bytes per second of each stream.
const RATE: u64 = 20_000_000;
/// The denied stream's last byte may come so long after the change was asked for, ns.
const BOUND: u64 = 1_000_000_000;
/// Longest time without a byte of the other stream, ns.
const GAP: u64 = 200_000_000;

fn run(world: &mut World) -> Result<(), LabError> {
    world.start_main("the laboratory's configuration")?;
    let address = world.address("blue-2", false)?;
    let stream = |port: u16, world: &World| -> Result<_, LabError> {
        let target = SocketAddr::new(address, port);
        let server = TcpServer::start(world.host("blue-2")?, target)?;
        let send =
            TcpSend { rate: Some(RATE), seed: port.into(), ..TcpSend::new(target, Amount::UntilStopped) };
        Ok((server, send.start(world.host("blue-1")?)?))
    };
    let (allowed_server, allowed) = stream(ALLOWED, world)?;
    let (denied_server, denied) = stream(DENIED, world)?;
    world.sleep(Duration::from_millis(700))?;

    let mut device = world.device()?.clone();
    let group = device.acl_groups.iter_mut().find(|g| g.acl_group_id == "blue-in");
    let group =
        group.ok_or_else(|| LabError::Topology("the scenario needs an ACL group named blue-in".into()))?;
    group.rules.push(policy::tcp("no-5002", 5, AclAction::Deny, DENIED, DENIED));
    let before = world.drops()?;
    let asked = now();
    world.apply(&device)?;
    let confirmed = now();
    world.sleep(Duration::from_millis(1300))?;

    let end = now();
    let sent = allowed.stop()?;
    // Its end cannot arrive: that it fails is what the change is for.
    drop(denied);
    let after = world.drops()?;
    let (allowed, denied) = (allowed_server.stop()?, denied_server.stop()?);
    world.out.note(format!(
        "the change was in force, read back from the device, {} after it was asked for",
        ms(confirmed - asked)
    ));

    let last = denied.first().map_or(0, |c| c.last_at);
    let bytes = denied.first().map_or(0, |c| c.bytes);
    let late = last.saturating_sub(asked);
    world.out.check(
        bytes > 0 && last + 500_000_000 > asked && late <= BOUND,
        format!("the connection to port {DENIED} stops"),
        format!("its last byte at most {} after the change was asked for", ms(BOUND)),
        format!("{}; {bytes} bytes had come, none in the {} that followed", ms(late), ms(end - last)),
        "blue-2's receiver",
    );
    let dropped = after.of("acl_in_denied") - before.of("acl_in_denied");
    world.out.check(
        dropped > 0,
        "what still comes for it is dropped by name",
        "acl_in_denied counts",
        format!("acl_in_denied +{dropped}"),
        "drops",
    );
    let Some(other) = allowed.first() else {
        world.out.check(
            false,
            "the other connection goes on",
            "a connection",
            "none was accepted",
            "blue-2's receiver",
        );
        return Ok(());
    };
    let gap = longest_gap(&other.series.samples(), asked - 500_000_000, end);
    world.out.check(
        sent.verified() && gap <= GAP,
        format!("the connection to port {ALLOWED} loses nothing"),
        format!("every byte with its digest, never {} without one", ms(GAP)),
        format!(
            "{} bytes of {} ({}), longest gap {}, {} during the change",
            other.bytes,
            sent.bytes,
            if sent.verified() { "digest the same" } else { "digest NOT the same" },
            ms(gap),
            rate(other.series.bits_per_second(asked, end))
        ),
        "both ends",
    );
    Ok(())
}
