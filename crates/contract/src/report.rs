//! What anybody may read of a device. The JSON members are stable.

use crate::{EntryId, Generation, RuleRef, Version};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A question to the device's read-only socket: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// Answered by [`Answer::Status`].
    Status,
    /// Answered by [`Answer::Ports`].
    Ports,
    /// Answered by [`Answer::Drops`].
    Drops,
    /// Answered by [`Answer::Points`].
    Points,
    /// Answered by [`Answer::Flows`].
    Flows {
        /// How many at most.
        limit: usize,
    },
    /// Answered by [`Answer::Trace`].
    Trace {
        /// Where the packet comes in: a port's name.
        port: String,
        /// The frame, from the Ethernet header on.
        frame: Vec<u8>,
    },
}

/// An answer of the read-only socket: one JSON object a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The device as a whole.
    Status(Box<Status>),
    /// Its ports.
    Ports(Vec<PortReport>),
    /// Drops by point and reason.
    Drops(Vec<DropReport>),
    /// The account of every observation point.
    Points(Vec<PointReport>),
    /// Connections.
    Flows(Vec<FlowReport>),
    /// A packet's way.
    Trace(TraceReport),
    /// The question could not be answered.
    Error(String),
}

/// Frames, and what they are worth on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Frames as the device handles them (super-frames count once); comparable with the kernel's counters.
    pub frames: u64,
    /// Wire-equivalent packets: segments of super-frames.
    pub packets: u64,
    /// Wire-equivalent bytes: headers repeated per segment, from the Ethernet header on, without FCS.
    pub bytes: u64,
}

/// The device as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Program that it runs.
    pub program: String,
    /// Its profile.
    pub profile: String,
    /// `fallback` or `drop`.
    pub miss_policy: String,
    /// `host` or `deny`.
    pub reset_policy: String,
    /// Life of its tables.
    pub generation: Generation,
    /// Last committed version.
    pub version: Version,
    /// Version that every thread judges by.
    pub settled: Version,
    /// Nanoseconds since the device started.
    pub uptime_ns: u64,
    /// Frames that entered and are nowhere; anything but 0 is an alarm.
    pub unaccounted: i64,
    /// Frames waiting inside (rings and queues).
    pub queued: u64,
    /// What came in by ports.
    pub rx: Amount,
    /// What left by ports.
    pub tx: Amount,
    /// What was dropped, all reasons.
    pub dropped: Amount,
    /// What ended here without being dropped: ARP that was answered, say.
    pub consumed: Amount,
    /// What was made here: ARP answers, say.
    pub created: Amount,
    /// Frames that the device handled itself, after a hit in its flow table.
    pub flow_hits: u64,
    /// Frames that went to the host path.
    pub punted: u64,
    /// Connections by tier.
    pub connections: Connections,
    /// Table use.
    pub tables: Vec<TableUse>,
    /// ENIs and whether they are armed.
    pub enis: Vec<EniReport>,
    /// CPU time used, per thread.
    pub threads: Vec<ThreadReport>,
    /// Whether a controller is connected.
    pub controller: bool,
}

/// Connections by tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Connections {
    /// In the device's flow table.
    pub device: u64,
    /// On their way into it.
    pub pending: u64,
    /// Owned by the host path.
    pub host: u64,
}

/// Use of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUse {
    /// Its name.
    pub name: String,
    /// Entries in it.
    pub used: u64,
    /// What the profile allows; absent: as many as memory holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// One ENI of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniReport {
    /// Its number.
    pub eni: u16,
    /// The port that it lives on.
    pub port: String,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Whether the device decides its packets.
    pub armed: bool,
}

/// CPU time of one thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// `worker-0`, `host-path-0`, `management`.
    pub name: String,
    /// CPU time in ns.
    pub cpu_ns: u64,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReport {
    /// Its name.
    pub name: String,
    /// `tap`, `af_packet`, `memory`.
    pub kind: String,
    /// The interface behind it.
    pub interface: String,
    /// Its MTU in bytes of IP.
    pub mtu: u32,
    /// Frames in (comparable with the kernel).
    pub rx_frames: u64,
    /// Wire-equivalent packets in.
    pub rx_packets: u64,
    /// Wire-equivalent bytes in.
    pub rx_bytes: u64,
    /// Frames out.
    pub tx_frames: u64,
    /// Wire-equivalent packets out.
    pub tx_packets: u64,
    /// Wire-equivalent bytes out.
    pub tx_bytes: u64,
    /// Frames dropped that came in here, or could not leave here.
    pub drops: u64,
    /// Frames received by size.
    pub sizes: Vec<SizeBucket>,
}

/// One bar of a histogram of frame sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeBucket {
    /// The largest size that counts here, in bytes.
    pub up_to: u32,
    /// Frames.
    pub frames: u64,
}

/// Frames dropped at one point for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropReport {
    /// The observation point.
    pub point: String,
    /// The reason's code.
    pub reason: String,
    /// Frames.
    pub frames: u64,
    /// Wire-equivalent packets.
    pub packets: u64,
    /// Wire-equivalent bytes.
    pub bytes: u64,
}

/// The account of one observation point: `entered = left + held + unaccounted`, in frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointReport {
    /// The observation point.
    pub point: String,
    /// Ways in, with frames.
    pub entered: Vec<(String, u64)>,
    /// Ways out, with frames.
    pub left: Vec<(String, u64)>,
    /// Frames inside now.
    pub held: u64,
    /// What is missing.
    pub unaccounted: i64,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowReport {
    /// `device`, `pending` or `host`.
    pub tier: String,
    /// The thread that owns its state.
    pub owner: String,
    /// Protocol name or number.
    pub protocol: String,
    /// Where it was opened: port name.
    pub port: String,
    /// The opener's address.
    pub src: IpAddr,
    /// The other address.
    pub dst: IpAddr,
    /// The opener's port, or an ICMP identifier.
    pub src_port: u16,
    /// The other port.
    pub dst_port: u16,
    /// Where it leads: port name.
    pub peer_port: String,
    /// `new`, `established`, `closing` ... as conntrack sees it.
    pub state: String,
    /// Frames, both directions.
    pub frames: u64,
    /// Version under which it was judged.
    pub version: Version,
    /// Nanoseconds since its last packet.
    pub idle_ns: u64,
}

/// Where a step was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// A worker of the device.
    Device,
    /// The host path.
    HostPath,
}

/// One stage of a packet's way.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceStep {
    /// Who did it.
    pub executor: Executor,
    /// The stage's name.
    pub stage: String,
    /// The entry that matched.
    pub entry: Option<EntryId>,
    /// Its rule.
    pub rule: Option<RuleRef>,
    /// What was found, and why it led on.
    pub why: String,
}

/// How a packet's way ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceOutcome {
    /// It leaves by a port.
    Forward {
        /// The port's name.
        port: String,
    },
    /// It is dropped.
    Drop {
        /// The reason's code.
        reason: String,
    },
    /// It ends inside, for this reason (an ARP request that is answered, say).
    Consume {
        /// The reason's code.
        reason: String,
    },
}

/// A packet's way through the device, stage by stage.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceReport {
    /// The packet in words.
    pub packet: String,
    /// Where it came in: port name.
    pub port: String,
    /// The version that judged it.
    pub version: Version,
    /// Its stages in order.
    pub steps: Vec<TraceStep>,
    /// Who decided in the end.
    pub executor: Executor,
    /// Where the state of its connection lives: `device`, `pending`, `host`, `none`.
    pub state: String,
    /// The end.
    pub outcome: TraceOutcome,
}
