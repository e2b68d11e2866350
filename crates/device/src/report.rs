//! What threads tell of themselves, and what they can be asked.

use crate::egress::PortCount;
use crate::inspect::Inspection;
use crate::shared::{PortDescription, Snapshot};
use contract::report::FlowReport;
use functions::conntrack;
use packet::{Count, Ledger};
use pipeline::connection::{Connection, Connections, Tier};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use wire::ip::protocol;

/// One thread's account, taken between two batches.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Its name.
    pub name: String,
    /// Its account.
    pub ledger: Ledger,
    /// What it saw of each port, by index; empty for a host path thread.
    pub ports: Vec<PortCount>,
    /// Hits by entry id.
    pub hits: HashMap<u32, Count>,
    /// Frames that hit in the device's flow table.
    pub flow_hits: u64,
    /// Connections of the device tier.
    pub device: u64,
    /// Connections on their way there.
    pub pending: u64,
    /// Connections of the host tier.
    pub host: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
}

/// Records visited for one [`Ask::Flows`].
pub const FLOW_CHUNK: u32 = 4096;

/// A question to one thread.
pub enum Ask {
    /// What becomes of a packet.
    Inspect(Box<Inspection>),
    /// Connections from this record on, and the record to go on from (`None` at the end).
    Flows(u32, Sender<(Vec<FlowReport>, Option<u32>)>),
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Connections among `chunk` records from `from` on that `wanted` picks.
#[allow(clippy::too_many_arguments)]
pub fn flows(
    connections: &Connections,
    from: u32,
    chunk: u32,
    owner: &str,
    snapshot: &Snapshot,
    now_ms: u32,
    ports: &[PortDescription],
    wanted: impl Fn(&Connection) -> bool,
) -> (Vec<FlowReport>, Option<u32>) {
    let end = connections.capacity().min(from.saturating_add(chunk));
    let name = |port: u16| ports.get(port as usize).map_or(String::new(), |p| p.name.clone());
    // A reset takes flows out of the device's table; their connections wait for the next packet.
    let shown = |c: &Connection| match c.cold.tier {
        Tier::Device if c.cold.generation != snapshot.generation.0 as u16 => Tier::Pending,
        tier => tier,
    };
    let rows = (from..end)
        .map(|record| connections.get(record))
        .filter(|c| c.cold.used && wanted(c))
        .map(|c| {
            let key = &c.flows[0].key;
            FlowReport {
                tier: tier(shown(c)).into(),
                owner: owner.into(),
                protocol: protocol_name(key.proto),
                port: name(c.cold.port),
                src: key.src_ip(),
                dst: key.dst_ip(),
                src_port: key.sport,
                dst_port: key.dport,
                peer_port: name(c.flows[0].port),
                state: conntrack::state_word(&c.cold.track).into(),
                frames: u64::from(c.flows[0].frames) + u64::from(c.flows[1].frames),
                version: snapshot.version,
                idle_ns: u64::from(now_ms.wrapping_sub(c.seen())) * 1_000_000,
            }
        })
        .collect();
    (rows, (end < connections.capacity()).then_some(end))
}

/// A tier in a word.
pub fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::Host => "host",
        Tier::Pending => "pending",
        Tier::Device => "device",
    }
}

fn protocol_name(protocol: u8) -> String {
    match protocol {
        protocol::ICMP => "icmp".into(),
        protocol::TCP => "tcp".into(),
        protocol::UDP => "udp".into(),
        protocol::ICMPV6 => "icmpv6".into(),
        other => other.to_string(),
    }
}
