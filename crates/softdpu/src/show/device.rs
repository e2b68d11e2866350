//! The device's answers.

use crate::output::{duration, pairs, rows};
use contract::report::{Amount, DropReport, FlowReport, PortReport, Status};
use packet::DropReason;

/// The device at a glance.
pub fn status(s: &Status) -> String {
    let amount = |a: &Amount| format!("{} frames ({} packets, {} bytes)", a.frames, a.packets, a.bytes);
    let law = match s.unaccounted {
        0 => "0: every frame that entered is somewhere".to_owned(),
        n if n > 0 => format!("{n}: ALARM, frames were lost without a name"),
        n => format!("{n}: ALARM, frames were counted twice"),
    };
    let armed: Vec<String> =
        s.enis.iter().map(|e| format!("{}{}", e.port, if e.armed { "" } else { " (not armed)" })).collect();
    let mut text = pairs(&[
        (
            "program",
            format!(
                "{}, profile {}, miss policy {}, reset policy {}",
                s.program, s.profile, s.miss_policy, s.reset_policy
            ),
        ),
        ("controller", if s.controller { "connected".into() } else { "not connected".to_owned() }),
        ("version", format!("{} (settled {}), generation {}", s.version, s.settled, s.generation)),
        ("up", duration(s.uptime_ns)),
        ("ENIs on ports", if armed.is_empty() { "none".into() } else { armed.join(", ") }),
        (
            "connections",
            format!(
                "{} device, {} pending, {} host",
                s.connections.device, s.connections.pending, s.connections.host
            ),
        ),
        ("received", amount(&s.rx)),
        ("sent", amount(&s.tx)),
        ("dropped", amount(&s.dropped)),
        ("consumed", amount(&s.consumed)),
        ("created", amount(&s.created)),
        ("flow hits", s.flow_hits.to_string()),
        ("punted", s.punted.to_string()),
        ("queued", s.queued.to_string()),
        ("unaccounted", law),
    ]);
    let tables = s
        .tables
        .iter()
        .map(|t| [t.name.clone(), t.used.to_string(), t.limit.map_or("-".into(), |l| l.to_string())])
        .collect();
    text.push('\n');
    text.push_str(&rows(["TABLE", "USED", "LIMIT"], tables, ""));
    let threads = s.threads.iter().map(|t| [t.name.clone(), duration(t.cpu_ns)]).collect();
    text.push('\n');
    text.push_str(&rows(["THREAD", "CPU TIME"], threads, ""));
    text
}

/// All ports.
pub fn ports(ports: &[PortReport]) -> String {
    let line = |p: &PortReport| {
        [
            p.name.clone(),
            p.kind.clone(),
            p.interface.clone(),
            p.mtu.to_string(),
            p.rx_frames.to_string(),
            p.rx_packets.to_string(),
            p.tx_frames.to_string(),
            p.tx_packets.to_string(),
            p.drops.to_string(),
        ]
    };
    rows(
        ["NAME", "KIND", "INTERFACE", "MTU", "RX FRAMES", "RX PACKETS", "TX FRAMES", "TX PACKETS", "DROPS"],
        ports.iter().map(line).collect(),
        "no ports",
    )
}

/// One port, with the sizes that it received.
pub fn port(p: &PortReport) -> String {
    let mut text = pairs(&[
        ("name", p.name.clone()),
        ("kind", p.kind.clone()),
        ("interface", p.interface.clone()),
        ("mtu", p.mtu.to_string()),
        ("received", format!("{} frames, {} packets, {} bytes", p.rx_frames, p.rx_packets, p.rx_bytes)),
        ("sent", format!("{} frames, {} packets, {} bytes", p.tx_frames, p.tx_packets, p.tx_bytes)),
        ("drops", p.drops.to_string()),
    ]);
    let most = p.sizes.iter().map(|b| b.frames).max().unwrap_or(0).max(1);
    let bars = p.sizes.iter().filter(|b| b.frames > 0).map(|b| {
        let width = (b.frames * 40 / most).max(1) as usize;
        [format!("<= {}", b.up_to), b.frames.to_string(), "#".repeat(width)]
    });
    text.push('\n');
    text.push_str(&rows(["SIZE", "FRAMES", ""], bars.collect(), "nothing received yet"));
    text
}

/// Dropped frames by place and reason.
pub fn drops(drops: &[DropReport]) -> String {
    let line = |d: &DropReport| {
        let meaning = DropReason::from_code(&d.reason).map_or("", DropReason::meaning);
        [
            d.point.clone(),
            d.reason.clone(),
            d.frames.to_string(),
            d.packets.to_string(),
            d.bytes.to_string(),
            meaning.to_owned(),
        ]
    };
    rows(
        ["POINT", "REASON", "FRAMES", "PACKETS", "BYTES", "MEANING"],
        drops.iter().map(line).collect(),
        "nothing was dropped",
    )
}

/// Connections.
pub fn flows(flows: &[FlowReport]) -> String {
    let end = |ip: std::net::IpAddr, port: u16| match (ip, port) {
        (ip, 0) => ip.to_string(),
        (std::net::IpAddr::V6(ip), port) => format!("[{ip}]:{port}"),
        (ip, port) => format!("{ip}:{port}"),
    };
    let line = |f: &FlowReport| {
        [
            f.tier.clone(),
            f.owner.clone(),
            f.protocol.clone(),
            f.port.clone(),
            end(f.src, f.src_port),
            end(f.dst, f.dst_port),
            f.peer_port.clone(),
            f.state.clone(),
            f.frames.to_string(),
            duration(f.idle_ns),
        ]
    };
    rows(
        ["TIER", "OWNER", "PROTO", "FROM", "SOURCE", "DESTINATION", "TO", "STATE", "FRAMES", "IDLE"],
        flows.iter().map(line).collect(),
        "no connections",
    )
}
