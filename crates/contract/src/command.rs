//! Commands and completions.

use crate::report::TraceReport;
use crate::{CommandId, Entry, EntryId, Generation, InstallReason, Miss, Session, TableId, Target, Version};
use serde::{Deserialize, Serialize};

/// One change to one set of tables, staged until the commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// Adds an entry.
    Insert {
        /// Where to.
        target: Target,
        /// The entry.
        entry: Entry,
    },
    /// Removes an entry; its room is free after the commit, or at once if it was only staged.
    Delete {
        /// Where from.
        target: Target,
        /// The table.
        table: TableId,
        /// The entry.
        id: EntryId,
    },
    /// Sets what a scope answers on a miss; costs no room.
    SetMiss {
        /// Where.
        target: Target,
        /// The table.
        table: TableId,
        /// The scope.
        scope: u32,
        /// The answer.
        miss: Miss,
    },
}

/// What a reset reaches. Each scope's exact effect is in docs/resets.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetScope {
    /// The device's tables and flows are lost; connections, the host path's tables and counters stay.
    Warm,
}

/// What the controller asks of a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Command {
    /// Opens a session. Any older session is fenced, its uncommitted changes are dropped. Answered by [`Reply::State`].
    Hello {
        /// Higher than any session before.
        session: Session,
    },
    /// Adds a change to the session's open transaction (the first one opens it).
    Stage(Op),
    /// Makes all that is staged effective at once, for the device and the host path.
    Commit {
        /// The device's version from then on; higher than the present one.
        version: Version,
    },
    /// Drops all that is staged.
    Abort,
    /// Reads entries back, in the order of their ids.
    Dump {
        /// From which set of tables.
        target: Target,
        /// The first id wanted.
        from: EntryId,
        /// How many at most.
        limit: u32,
    },
    /// Reads hit counters, in the order of entry ids.
    Hits {
        /// The first id wanted.
        from: EntryId,
        /// How many at most.
        limit: u32,
    },
    /// Declares the safe sets of these ENIs confirmed: the device may decide their packets.
    Arm {
        /// ENI numbers.
        enis: Vec<u16>,
    },
    /// Resets a part of the device.
    Reset(ResetScope),
    /// Sends a packet through the device as if it had come in on a port; it is counted, but never leaves.
    Probe {
        /// The port's index.
        port: u16,
        /// The frame, from the Ethernet header on.
        frame: Vec<u8>,
    },
    /// Asks for the device's state.
    State,
}

/// One ENI's readiness.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Armed {
    /// The ENI's number.
    pub eni: u16,
    /// Whether the device decides its packets.
    pub armed: bool,
}

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceState {
    /// The life of its tables.
    pub generation: Generation,
    /// The last committed version.
    pub version: Version,
    /// The version by which every worker and host path thread judges, at least.
    pub settled: Version,
    /// The session that may write.
    pub session: Session,
    /// ENIs that are armed.
    pub armed: Vec<u16>,
    /// Ports by index.
    pub ports: Vec<String>,
    /// Table use: name, used, limit (0: none).
    pub tables: Vec<(String, u64, u64)>,
}

/// An entry as read back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DumpedEntry {
    /// The entry.
    pub entry: Entry,
    /// The version since which it holds.
    pub since: Version,
}

/// Hits of one entry, exact, since it was first installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct EntryHits {
    /// The entry.
    pub entry: EntryId,
    /// Frames that the device judged by it.
    pub device: u64,
    /// Frames that the host path judged by it.
    pub host: u64,
}

/// What became of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probed {
    /// What it met, stage by stage.
    pub trace: TraceReport,
    /// Entries whose counters went up by it, in the device.
    pub hits: Vec<EntryId>,
}

/// The good answer to a command.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reply {
    /// Done.
    Done,
    /// The device's state.
    State(DeviceState),
    /// A page of entries, and where the next page starts.
    Entries {
        /// The entries.
        entries: Vec<DumpedEntry>,
        /// `None` after the last page.
        next: Option<EntryId>,
    },
    /// A page of hit counters, and where the next page starts.
    Hits {
        /// The counters.
        hits: Vec<EntryHits>,
        /// `None` after the last page.
        next: Option<EntryId>,
    },
    /// What became of the probe.
    Probed(Box<Probed>),
    /// Not an answer: the device tells of itself that it was reset. Its command id is 0.
    Reset(ResetScope),
}

/// The answer to one command.
pub type Outcome = Result<Reply, InstallReason>;

/// The answer to a command, whenever it comes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Completion {
    /// The command; 0 for what the device says by itself.
    pub id: CommandId,
    /// The generation under which it was carried out.
    pub generation: Generation,
    /// How it went.
    pub outcome: Outcome,
}
