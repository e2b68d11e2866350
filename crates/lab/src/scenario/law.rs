//! Step 8: the law. What came in went out, was dropped by name, or ended by name; the kernel and the hosts say so too.

use super::Step;
use super::world::{Account, World};
use crate::error::LabError;
use std::collections::BTreeMap;

pub(super) const STEP: Step = Step {
    title: "the law: every frame is accounted for",
    explanation: "All traffic has stopped. For every daemon that ran in this scenario: what its device counted must add up,
        and must equal what the kernel counted at the hosts' interfaces and what sniffers saw there.",
    run,
};

fn run(world: &mut World) -> Result<(), LabError> {
    let account = world.account()?;
    world.accounts.push(account);
    let accounts = std::mem::take(&mut world.accounts);
    let mut drops: BTreeMap<(String, String), u64> = BTreeMap::new();
    for account in &accounts {
        judge(world, account);
        for drop in account.drops.iter().filter(|d| d.frames > 0) {
            *drops.entry((drop.reason.clone(), drop.point.clone())).or_default() += drop.frames;
        }
    }
    let rows: Vec<[String; 3]> =
        drops.into_iter().map(|((reason, point), frames)| [reason, point, frames.to_string()]).collect();
    world.out.say("\nDropped frames, all daemons together:");
    world.out.table(["REASON", "POINT", "FRAMES"], &rows);
    Ok(())
}

fn judge(world: &mut World, account: &Account) {
    let status = &account.status;
    let named = &account.label;
    world.out.check(
        status.unaccounted == 0 && status.queued == 0 && account.still,
        format!("nothing is unaccounted for ({named})"),
        "0 unaccounted, 0 queued",
        match status.unaccounted {
            0 => format!(
                "0 unaccounted, {} queued; {} frames in, {} out",
                status.queued, status.rx.frames, status.tx.frames
            ),
            n => format!("{n} unaccounted, {} queued: {}", status.queued, leaks(account)),
        },
        "status, points",
    );
    let (mut frames, mut wrong, mut lost) = (0, Vec::new(), 0);
    for (port, c) in &account.ports {
        let (sent, got) = (c.kernel.tx_packets, c.kernel.rx_packets);
        frames += sent + got;
        lost += c.kernel.tx_dropped;
        if (sent, got) != (c.device_rx, c.device_tx) {
            wrong.push(format!(
                "{port}: the host sent {sent} and got {got}, the device got {} and sent {}",
                c.device_rx, c.device_tx
            ));
        }
        if c.sniffed.passed != sent + got + c.kernel.tx_dropped {
            let queue = c.kernel.tx_dropped;
            wrong.push(format!(
                "{port}: a sniffer saw {} frames of {sent} + {got} + {queue}",
                c.sniffed.passed
            ));
        }
    }
    let queue = if lost > 0 {
        format!(", {lost} more dropped by the hosts' own queues (tx_dropped)")
    } else {
        String::new()
    };
    world.out.check(
        wrong.is_empty() && frames > 0,
        format!("device, kernel and receivers agree ({named})"),
        "the same frames at every port, in both directions",
        if wrong.is_empty() {
            format!("{frames} frames at {} ports{queue}", account.ports.len())
        } else {
            wrong.join("; ")
        },
        "port list, the kernel's interface counters, sniffers",
    );
}

/// At which points frames are missing, or were counted twice.
fn leaks(account: &Account) -> String {
    let points = account.points.iter().filter(|p| p.unaccounted != 0);
    let lines: Vec<String> = points
        .map(|p| match p.unaccounted {
            n if n > 0 => format!("{n} frames leaked at {}", p.point),
            n => format!("{} frames counted twice at {}", -n, p.point),
        })
        .collect();
    lines.join(", ")
}
