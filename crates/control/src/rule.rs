//! What is known of a rule: its state, since when, why, and how it came there.

use crate::numbers::PolicyRule;
use contract::{EntryId, InstallReason, RuleRef};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Changes of state that are remembered per rule.
pub const HISTORY: usize = 16;

/// A rule's state: the worst of its entries'.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleState {
    /// It is wanted; nothing was done for it yet, or what was done is no longer sure.
    Requested,
    /// It was compiled.
    Validated,
    /// The device said that it took all its entries.
    Installed,
    /// All its entries were read back from the device, under its present generation.
    Confirmed,
    /// Besides, a packet was judged by it in the device.
    Proven,
    /// The host path carries it out, in part or in whole.
    Software,
    /// It is not in force, and its whole change is not.
    Refused,
}

impl RuleState {
    /// The stable snake_case word.
    pub fn word(self) -> &'static str {
        match self {
            RuleState::Requested => "requested",
            RuleState::Validated => "validated",
            RuleState::Installed => "installed",
            RuleState::Confirmed => "confirmed",
            RuleState::Proven => "proven",
            RuleState::Software => "software",
            RuleState::Refused => "refused",
        }
    }
}

/// A point in time, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Moment {
    /// Nanoseconds since the controller started.
    pub uptime_ns: u64,
    /// Nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
}

/// One change of a rule's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The state from then on.
    pub state: RuleState,
    /// Why, as a code with details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When.
    pub at: Moment,
}

/// One rule, as `rule list` shows it. The JSON members are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name: `acl/blue-out/allow-web`.
    pub id: String,
    /// The number that entries and traces carry.
    pub number: u32,
    /// Counts changes of its content.
    pub revision: u32,
    /// The table that it is about.
    pub table: String,
    /// Its priority; 0 where the match decides.
    pub priority: u32,
    /// Its state.
    pub state: RuleState,
    /// Why it is in that state: `table_full{table=acl,used=12,limit=12}`; null where the state says it all.
    pub reason: Option<String>,
    /// Frames that the device judged by it.
    pub hits_device: u64,
    /// Frames that the host path judged by it.
    pub hits_host: u64,
    /// Entries in the device, and entries in all: `3/4`.
    pub entries: String,
    /// Since when it is in that state.
    pub since: Moment,
}

/// What the controller remembers of a rule.
#[derive(Debug, Clone)]
pub(crate) struct RuleStatus {
    pub reference: RuleRef,
    /// The entries that this status is about.
    pub entries: Vec<EntryId>,
    pub history: VecDeque<Change>,
    /// Device hits when it was confirmed; `None` until counters were read since.
    pub proof_base: Option<u64>,
    /// Hits of entries that it no longer has.
    pub retired: (u64, u64),
}

impl RuleStatus {
    pub fn new(rule: &PolicyRule, at: Moment) -> RuleStatus {
        let mut status = RuleStatus {
            reference: rule.reference,
            entries: rule.entries.clone(),
            history: VecDeque::new(),
            proof_base: None,
            retired: (0, 0),
        };
        status.set(RuleState::Requested, None, at);
        status
    }

    pub fn state(&self) -> RuleState {
        self.history.back().map_or(RuleState::Requested, |c| c.state)
    }

    /// Whether it is said to be in the device.
    pub fn is_in_device(&self) -> bool {
        matches!(self.state(), RuleState::Installed | RuleState::Confirmed | RuleState::Proven)
    }

    pub fn reason(&self) -> Option<&str> {
        self.history.back().and_then(|c| c.reason.as_deref())
    }

    pub fn since(&self) -> Moment {
        self.history.back().map(|c| c.at).unwrap_or_default()
    }

    /// Notes a state; no change if state and reason are the present ones.
    pub fn set(&mut self, state: RuleState, reason: Option<String>, at: Moment) {
        if let Some(last) = self.history.back()
            && last.state == state
            && last.reason == reason
        {
            return;
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        if state != RuleState::Proven {
            self.proof_base = None;
        }
        self.history.push_back(Change { state, reason, at });
    }
}

/// A reason as a code with its details: `table_full{table=acl,used=12,limit=12}`. `name` gives the name of a rule's number.
pub(crate) fn reason_text(reason: &InstallReason, name: impl Fn(u32) -> Option<String>) -> String {
    let code = reason.code();
    match reason {
        InstallReason::TableFull { table, used, limit }
        | InstallReason::BucketFull { table, used, limit } => {
            format!("{code}{{table={table},used={used},limit={limit}}}")
        }
        InstallReason::UnsupportedMatch { field } => format!("{code}{{field={field}}}"),
        InstallReason::UnsupportedAction { action } => format!("{code}{{action={action}}}"),
        InstallReason::BlockedBy { rule } => {
            let rule = name(*rule).unwrap_or_else(|| rule.to_string());
            format!("{code}{{rule={rule}}}")
        }
        InstallReason::DependencyMissing { what } => format!("{code}{{what={what}}}"),
        InstallReason::StaleGeneration { current } => format!("{code}{{current={current}}}"),
        InstallReason::Allowance { eni } => format!("{code}{{eni={eni}}}"),
        InstallReason::EntryMissing { entry, table } | InstallReason::EntryExists { entry, table } => {
            let table = crate::words::table(*table);
            format!("{code}{{entry={entry},table={table}}}")
        }
        InstallReason::MemoryFull
        | InstallReason::CounterFull
        | InstallReason::UnsupportedCombination
        | InstallReason::QueueFull
        | InstallReason::Timeout
        | InstallReason::FirmwareRejected => code.to_owned(),
    }
}
