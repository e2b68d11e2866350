//! Why an entry is not in the device.

use crate::{EntryId, Generation, TableId};
use serde::{Deserialize, Serialize};

/// Why a command failed, or why a rule is not in the device. The snake_case name is the stable code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum InstallReason {
    /// The table has no room.
    #[error("table_full: {table} holds {used} of {limit}")]
    TableFull {
        /// The table's name.
        table: String,
        /// Entries in it, staged ones included.
        used: u64,
        /// What the profile allows.
        limit: u64,
    },
    /// The table has room, the place that this key hashes to has not.
    #[error("bucket_full: {table} holds {used} of {limit}, but not in this bucket")]
    BucketFull {
        /// The table's name.
        table: String,
        /// Entries in it.
        used: u64,
        /// What the profile allows.
        limit: u64,
    },
    /// No memory on the device.
    #[error("memory_full")]
    MemoryFull,
    /// No counter left.
    #[error("counter_full")]
    CounterFull,
    /// The table cannot match this field in this way.
    #[error("unsupported_match: {field}")]
    UnsupportedMatch {
        /// The field's name.
        field: String,
    },
    /// The table does not have this action.
    #[error("unsupported_action: {action}")]
    UnsupportedAction {
        /// The action's name or number.
        action: String,
    },
    /// Each part is supported, the whole is not.
    #[error("unsupported_combination")]
    UnsupportedCombination,
    /// A rule that overrides this one did not fit, so that the device may not decide here.
    #[error("blocked_by: rule {rule} overrides it and is not in the device")]
    BlockedBy {
        /// The controller's number of the overriding rule.
        rule: u32,
    },
    /// The command queue is full.
    #[error("queue_full")]
    QueueFull,
    /// No completion came in time; whether it took effect is unknown.
    #[error("timeout")]
    Timeout,
    /// The device refused without saying why.
    #[error("firmware_rejected")]
    FirmwareRejected,
    /// It refers to something that is not there.
    #[error("dependency_missing: {what}")]
    DependencyMissing {
        /// What is missing.
        what: String,
    },
    /// It was meant for an earlier life of the device, an older session or an older version.
    #[error("stale_generation: the device is at {current}")]
    StaleGeneration {
        /// The generation that holds now.
        current: Generation,
    },
    /// The ENI has used up what it was given.
    #[error("allowance: ENI {eni} has used what it was given")]
    Allowance {
        /// The ENI's number.
        eni: u16,
    },
    /// No such entry (delete).
    #[error("entry_missing: {entry} in table {table}")]
    EntryMissing {
        /// The entry.
        entry: EntryId,
        /// The table.
        table: TableId,
    },
    /// An entry with this id or this exact key is there already.
    #[error("entry_exists: {entry} in table {table}")]
    EntryExists {
        /// The entry that is there.
        entry: EntryId,
        /// The table.
        table: TableId,
    },
}

impl InstallReason {
    /// The stable snake_case code, without the details.
    pub fn code(&self) -> &'static str {
        match self {
            InstallReason::TableFull { .. } => "table_full",
            InstallReason::BucketFull { .. } => "bucket_full",
            InstallReason::MemoryFull => "memory_full",
            InstallReason::CounterFull => "counter_full",
            InstallReason::UnsupportedMatch { .. } => "unsupported_match",
            InstallReason::UnsupportedAction { .. } => "unsupported_action",
            InstallReason::UnsupportedCombination => "unsupported_combination",
            InstallReason::BlockedBy { .. } => "blocked_by",
            InstallReason::QueueFull => "queue_full",
            InstallReason::Timeout => "timeout",
            InstallReason::FirmwareRejected => "firmware_rejected",
            InstallReason::DependencyMissing { .. } => "dependency_missing",
            InstallReason::StaleGeneration { .. } => "stale_generation",
            InstallReason::Allowance { .. } => "allowance",
            InstallReason::EntryMissing { .. } => "entry_missing",
            InstallReason::EntryExists { .. } => "entry_exists",
        }
    }
}
