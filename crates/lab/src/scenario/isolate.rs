//! Step 3: tenants do not reach each other, and nobody passes for another.

use super::Step;
use super::world::World;
use crate::error::LabError;
use crate::traffic::{Ping, RawSender, SniffCounts, Sniffer, UdpFrame, UdpReceiver, UdpSend};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use wire::arp;
use wire::ethernet::{self, MacAddr};

pub(super) const STEP: Step = Step {
    title: "blue cannot reach red, and spoofed frames are dropped by name",
    explanation: "blue-1 and red-1 have the same address, and red-2 has one that only the red network knows. Then blue-1 sends raw frames
        that claim another's addresses. Each kind is dropped under its own name, counted to the frame, and no host sees any.",
    run,
};

/// Frames of each kind.
const FRAMES: u64 = 50;
/// In every raw frame's payload, so that a sniffer knows it.
const MARK: &[u8] = b"softdpu lab: nobody should see this";
/// An address of nobody.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const STRANGE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x77]);
const ELSEWHERE: [&str; 3] = ["blue-2", "red-1", "red-2"];

fn run(world: &mut World) -> Result<(), LabError> {
    world.start_main("the laboratory's configuration")?;
    unreachable(world)?;
    same_address(world)?;
    for case in cases(world)? {
        raw(world, &case)?;
    }
    Ok(())
}

/// By its own sockets blue-1 does not get as far as a frame for red-2: nobody tells it a MAC address.
fn unreachable(world: &mut World) -> Result<(), LabError> {
    let target = world.address("red-2", false)?;
    let sniffer = Sniffer::start(world.host("red-2")?, &world.plan("red-2")?.interface, |f| !f.outgoing)?;
    let before = world.drops()?;
    let ping = Ping { count: 2, timeout: Duration::from_millis(200), ..Ping::new(target) };
    let report = ping.start(world.host("blue-1")?)?.join()?;
    let seen = sniffer.stop()?;
    let asked = world.drops()?.of("arp_unknown_address") - before.of("arp_unknown_address");
    world.out.check(
        report.received == 0 && asked > 0 && unseen(&seen),
        format!("blue-1 cannot ping red-2 at {target}"),
        "no answer; its ARP question dropped as arp_unknown_address; red-2 sees no frame",
        format!(
            "{} answers; arp_unknown_address +{asked}; red-2 saw {} frames",
            report.received, seen.matched
        ),
        "blue-1's socket, drops, a sniffer at red-2",
    );
    Ok(())
}

/// Each tenant's packets for the shared address reach its own host.
fn same_address(world: &mut World) -> Result<(), LabError> {
    const COUNT: u64 = 20;
    let address = SocketAddr::new(world.address("blue-1", false)?, 5000);
    let at = |host: &str| UdpReceiver::start(world.host(host)?, address, true);
    let receivers = [at("blue-1")?, at("red-1")?];
    let mut echoed = [0; 2];
    for (i, from) in ["blue-2", "red-2"].into_iter().enumerate() {
        let echo = Some(Duration::from_secs(1));
        let send = UdpSend { stream: i as u32, count: Some(COUNT), echo, ..UdpSend::new(address) };
        echoed[i] = send.start(world.host(from)?)?.join()?.echoed;
    }
    let mut seen = Vec::new();
    let mut right = echoed == [COUNT; 2];
    for (i, receiver) in receivers.into_iter().enumerate() {
        let (streams, _) = receiver.stop()?;
        right &= matches!(&streams[..], [only] if only.stream == i as u32 && only.received == COUNT);
        let sources: Vec<String> =
            streams.iter().map(|s| format!("{} from {}", s.received, s.source.ip())).collect();
        seen.push(if sources.is_empty() { "none".into() } else { sources.join(" and ") });
    }
    world.out.check(
        right,
        format!("{} is blue-1 for blue and red-1 for red", address.ip()),
        format!("{COUNT} from blue-2 at blue-1, {COUNT} from red-2 at red-1, all echoed"),
        format!("blue-1 got {}, red-1 got {}; {} and {} echoes", seen[0], seen[1], echoed[0], echoed[1]),
        "receivers",
    );
    Ok(())
}

struct Case {
    what: &'static str,
    reason: &'static str,
    frame: Vec<u8>,
}

fn cases(world: &World) -> Result<Vec<Case>, LabError> {
    let mac = |host: &str| Ok::<_, LabError>(MacAddr(world.plan(host)?.mac));
    let v4 = |host: &str| world.address(host, false);
    let (own, peer, red) = (mac("blue-1")?, mac("blue-2")?, mac("red-2")?);
    let (own_ip, peer_ip, red_ip) = (v4("blue-1")?, v4("blue-2")?, v4("red-2")?);
    let udp = |src_mac, dst_mac, src: IpAddr, dst: IpAddr| {
        let (src, dst) = (SocketAddr::new(src, 5000), SocketAddr::new(dst, 5000));
        let frame = UdpFrame { src_mac, dst_mac, src, dst, payload: MARK };
        frame.build().map_err(LabError::setup("build a frame"))
    };
    Ok(vec![
        Case {
            what: "frames to red-2's address",
            reason: "no_mapping",
            frame: udp(own, red, own_ip, red_ip)?,
        },
        Case {
            what: "frames with another's source address",
            reason: "spoofed_ip",
            frame: udp(own, peer, NOBODY.into(), peer_ip)?,
        },
        Case {
            what: "frames with another's source MAC",
            reason: "spoofed_mac",
            frame: udp(STRANGE_MAC, peer, own_ip, peer_ip)?,
        },
        Case {
            what: "ARP messages that claim another's address",
            reason: "spoofed_arp",
            frame: claim(own, peer_ip)?,
        },
    ])
}

/// A gratuitous ARP reply in which blue-1 claims an address (RFC 5227, 3).
fn claim(own: MacAddr, address: IpAddr) -> Result<Vec<u8>, LabError> {
    let failed = |e: wire::WireError| LabError::setup("build a frame")(e);
    let IpAddr::V4(address) = address else {
        return Err(LabError::setup("build a frame")("an IPv4 address is needed"));
    };
    let mut frame = vec![0; ethernet::HEADER_LEN + arp::PACKET_LEN];
    let (head, body) = frame.split_at_mut(ethernet::HEADER_LEN);
    let header = ethernet::Header { dst: MacAddr::BROADCAST, src: own, ethertype: ethernet::ethertype::ARP };
    header.emit(head).map_err(failed)?;
    let packet = arp::Packet {
        operation: arp::Operation::Reply,
        sender_mac: own,
        sender_ip: address,
        target_mac: own,
        target_ip: address,
    };
    packet.emit(body).map_err(failed)?;
    frame.extend(MARK);
    Ok(frame)
}

fn raw(world: &mut World, case: &Case) -> Result<(), LabError> {
    let marked =
        |f: &crate::traffic::SniffedFrame<'_>| !f.outgoing && f.bytes.windows(MARK.len()).any(|w| w == MARK);
    let mut sniffers = Vec::new();
    for host in ELSEWHERE {
        sniffers.push(Sniffer::start(world.host(host)?, &world.plan(host)?.interface, marked)?);
    }
    let before = world.drops()?.of(case.reason);
    let sender = RawSender::open(world.host("blue-1")?, &world.plan("blue-1")?.interface)?;
    for _ in 0..FRAMES {
        sender.send(&case.frame)?;
    }
    let counted = || Ok(world.drops()?.of(case.reason) - before);
    world.wait(Duration::from_secs(1), || Ok(counted()? >= FRAMES))?;
    // What is counted too often would come now.
    world.sleep(Duration::from_millis(20))?;
    let dropped = counted()?;
    let (mut seen, mut blind) = (0, 0);
    for sniffer in sniffers {
        let counts = sniffer.stop()?;
        seen += counts.matched;
        blind += counts.drops;
    }
    world.out.check(
        dropped == FRAMES && seen == 0 && blind == 0,
        format!("{} are dropped as {}", case.what, case.reason),
        format!("{FRAMES} sent, {FRAMES} dropped, none at blue-2, red-1 and red-2"),
        format!("{FRAMES} sent, {} +{dropped}, {seen} seen", case.reason),
        "drops, sniffers at the three hosts",
    );
    Ok(())
}

fn unseen(counts: &SniffCounts) -> bool {
    counts.matched == 0 && counts.drops == 0
}
