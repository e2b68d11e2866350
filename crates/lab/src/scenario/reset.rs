//! Step 6: a warm reset under traffic. What the policy denies stays denied, whatever the device has forgotten.

use super::Step;
use super::measure::back;
use super::out::{ms, rate};
use super::overflow::{self, Loaded};
use super::policy;
use super::world::World;
use crate::error::LabError;
use crate::traffic::{Amount, TcpReceived, TcpSend, TcpServer, UdpReceiver, UdpSend, now};
use control::{Moment, ResetReport};
use model::{MissPolicy, ResetPolicy};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) const STEP: Step = Step {
    title: "a warm reset under a stream of denied and allowed packets",
    explanation: "The device loses its tables and flows while traffic runs. With the reset policy `host` an ENI's packets go to the host path
        until its rules are confirmed again, with `deny` they are dropped as not_armed. The denied stream is denied by a
        rule above an allow that would pass it; in the first run that rule has no room in the device. The receiver
        must not see one denied packet. Three times are told: the reset's start, when the device was back, and when
        the hosts' business was: 90 % of the goodput before, no error, for a second.",
    run,
};

/// Denied by d-6010, above the allow a-6000.
const DENIED: u16 = 6015;
/// Allowed by a-6000.
const ALLOWED: u16 = 6002;
/// Allowed by a-tcp, in the device in both runs.
const BUSINESS: u16 = 5001;
/// Datagrams per second of each stream.
const DATAGRAMS: u32 = 2000;
/// Bytes per second of the TCP stream.
const RATE: u64 = 20_000_000;
/// Part of the goodput before that counts as back, and for how long.
const PART: f64 = 0.9;
const SECOND: u64 = 1_000_000_000;
/// When business must be back, ns.
const BOUND: u64 = 5 * SECOND;

fn run(world: &mut World) -> Result<(), LabError> {
    under_reset(world, "tiny", ResetPolicy::Host)?;
    under_reset(world, "unlimited", ResetPolicy::Deny)
}

/// The three times, ns of the monotonic clock.
struct Times {
    impact_start: u64,
    device_back: Option<u64>,
    business_back: Option<u64>,
}

fn under_reset(world: &mut World, profile: &str, policy: ResetPolicy) -> Result<(), LabError> {
    let label = format!("{profile}, reset policy {policy}");
    let loaded = overflow::load(world, &label, profile, MissPolicy::Fallback, policy)?;
    place(world, policy, &loaded);

    let address = world.address("blue-2", false)?;
    let to = |port| SocketAddr::new(address, port);
    let udp = |port: u16, world: &World| -> Result<_, LabError> {
        let receiver = UdpReceiver::start(world.host("blue-2")?, to(port), false)?;
        let send = UdpSend { rate: DATAGRAMS, stream: port.into(), ..UdpSend::new(to(port)) };
        Ok((receiver, send.start(world.host("blue-1")?)?))
    };
    let (denied_receiver, denied) = udp(DENIED, world)?;
    let (allowed_receiver, allowed) = udp(ALLOWED, world)?;
    let server = TcpServer::start(world.host("blue-2")?, to(BUSINESS))?;
    let send = TcpSend { rate: Some(RATE), ..TcpSend::new(to(BUSINESS), Amount::UntilStopped) };
    let send = send.start(world.host("blue-1")?)?;
    world.sleep(Duration::from_millis(1200))?;

    let unarmed_before = unarmed(world, policy)?;
    let asked = now();
    let before = goodput(&server, asked - SECOND, asked);
    let report = world.daemon()?.reset()?;
    let impact_start = monotonic(report.impact_start).max(asked);
    let mut business_back = None;
    world.wait(Duration::from_nanos(BOUND), || {
        let series = server.connections().first().map(|c| c.series.clone());
        business_back = series.and_then(|s| back(&s, impact_start, now(), before * PART, SECOND));
        Ok(business_back.is_some())
    })?;
    let during = unarmed(world, policy)? - unarmed_before;

    let sent = send.stop()?;
    let (denied, allowed) = (denied.stop()?, allowed.stop()?);
    // What is under way still arrives.
    world.sleep(Duration::from_millis(50))?;
    let seen: u64 = denied_receiver.stop()?.0.iter().map(|s| s.received).sum();
    let passed: u64 = allowed_receiver.stop()?.0.iter().map(|s| s.received).sum();
    let business = server.stop()?;

    world.out.check(
        seen == 0 && denied.sent > 0 && passed > 0,
        format!("reset policy {policy}: not one denied packet at the receiver"),
        format!("0 of {} denied packets; allowed ones arrive", denied.sent),
        format!("{seen} of {} denied, {passed} of {} allowed", denied.sent, allowed.sent),
        "blue-2's receivers",
    );
    let (what, from) = match policy {
        ResetPolicy::Host => ("went to the host path as not_armed", "points"),
        ResetPolicy::Deny => ("were dropped as not_armed", "drops"),
    };
    world.out.check(
        during > 0,
        format!("reset policy {policy}: traffic met the device without its tables"),
        format!("frames {what}"),
        format!("{during} {what}"),
        from,
    );
    let device_back = report.device_back.map(monotonic);
    times(world, policy, &Times { impact_start, device_back, business_back }, before, &report);
    whole(world, policy, &business, sent.verified(), sent.bytes);
    Ok(())
}

/// Where the rule that denies is, and the allow below it.
fn place(world: &mut World, policy: ResetPolicy, loaded: &Loaded) {
    let find = |id: &str| [policy::allows(), policy::on_top()].concat().into_iter().find(|r| r.id == id);
    let (Some(deny), Some(allow)) = (find("d-6010"), find("a-6000")) else { return };
    let (fits, allow_in) = (loaded.is_in_now(&deny), loaded.is_in_now(&allow));
    let (ok, expected) = match policy {
        ResetPolicy::Host => {
            (loaded.did_not_fit(&deny) && allow_in, "the deny did not fit, the allow below it did")
        }
        ResetPolicy::Deny => (fits && allow_in, "the deny is in the device, and so is the allow below it"),
    };
    let word = |inside: bool| if inside { "in the device" } else { "not in the device" };
    world.out.check(
        ok,
        format!("reset policy {policy}: the denied stream is denied above an allow"),
        expected,
        format!("{} is {}, {} is {}", deny.id, word(fits), allow.id, word(allow_in)),
        "rule list",
    );
}

/// Frames so far that met an ENI that was not armed.
fn unarmed(world: &World, policy: ResetPolicy) -> Result<u64, LabError> {
    match policy {
        ResetPolicy::Deny => Ok(world.drops()?.of("not_armed")),
        ResetPolicy::Host => {
            let points = world.daemon()?.points()?;
            let ways = points.iter().flat_map(|p| &p.left).filter(|(way, _)| way == "punted not_armed");
            Ok(ways.map(|(_, frames)| frames).sum())
        }
    }
}

fn goodput(server: &TcpServer, from: u64, to: u64) -> f64 {
    server.connections().first().map_or(0.0, |c| c.series.bits_per_second(from, to))
}

fn times(world: &mut World, policy: ResetPolicy, times: &Times, before: f64, report: &ResetReport) {
    let after = |at: Option<u64>| {
        at.map_or("never".into(), |at| format!("+{}", ms(at.saturating_sub(times.impact_start))))
    };
    let bound = times.business_back.is_some_and(|at| at - times.impact_start <= BOUND);
    world.out.check(
        times.device_back.is_some() && bound && before > 0.0 && report.error.is_none(),
        format!("reset policy {policy}: device and business are back"),
        format!("{:.0} % of {} for 1 s, within {} s", PART * 100.0, rate(before), BOUND / SECOND),
        format!(
            "impact_start 0, device_back {}, business_back {}",
            after(times.device_back),
            after(times.business_back)
        ),
        "the reset's report, blue-2's receiver",
    );
}

fn whole(world: &mut World, policy: ResetPolicy, business: &[TcpReceived], verified: bool, bytes: u64) {
    let failures = business.iter().filter(|c| c.failure.is_some()).count();
    world.out.check(
        verified && failures == 0 && business.len() == 1,
        format!("reset policy {policy}: the TCP connection lives through it"),
        "one connection, every byte with its digest",
        format!(
            "{} connections, {bytes} bytes sent, {}",
            business.len(),
            if verified { "digest the same" } else { "digest NOT the same" }
        ),
        "both ends",
    );
}

/// A moment of the controller on the monotonic clock.
fn monotonic(moment: Moment) -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    now().saturating_sub(wall.saturating_sub(moment.wall_ns))
}
