//! Why a rule is where it is: its entries and their places, what stands in its way, what would make it fit.

use crate::compile::precedence;
use crate::controller::Controller;
use crate::rule::{Change, RuleReport, RuleState, reason_text};
use contract::{Entry, EntryId, InstallReason};
use serde::{Deserialize, Serialize};
use store::Store;

/// A rule with its entries and its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDetail {
    /// The rule.
    #[serde(flatten)]
    pub rule: RuleReport,
    /// Its last changes of state, the oldest first.
    pub history: Vec<Change>,
    /// Its entries.
    pub places: Vec<EntryPlace>,
}

/// One entry of a rule and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPlace {
    /// Its id.
    pub entry: EntryId,
    /// The table's name.
    pub table: String,
    /// The scope: a group's, an ENI's or a VNET's number.
    pub scope: u32,
    /// Its key in words.
    pub matches: String,
    /// Its action in words.
    pub action: String,
    /// `device`; `host` (in the host path alone); `punt` (a punt entry in the device stands for it); `nowhere`.
    pub place: String,
    /// Why it is not in the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Frames that the device judged by it.
    pub hits_device: u64,
    /// Frames that the host path judged by it.
    pub hits_host: u64,
}

/// Why a rule is in its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The rule, its entries and its history.
    #[serde(flatten)]
    pub detail: RuleDetail,
    /// The state in a sentence.
    pub summary: String,
    /// Rules that override it somewhere and are not in the device.
    pub blocked_by: Vec<String>,
    /// Rules in the device's tables that it overrides somewhere.
    pub overrides: Vec<String>,
    /// What would bring it into the device; absent where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl<S: Store> Controller<S> {
    /// A rule with its entries and its history; `None` if there is none of that name.
    pub fn detail(&self, rule: &str) -> Option<RuleDetail> {
        let report = self.rules().into_iter().find(|r| r.id == rule)?;
        let in_force = self.policy().is_some_and(|p| p.rules.contains_key(rule));
        let status = if in_force { self.statuses.get(rule) } else { self.refused.get(rule) }?;
        Some(RuleDetail {
            rule: report,
            history: status.history.iter().cloned().collect(),
            places: self.entries_of(rule).into_iter().map(|e| self.place(e)).collect(),
        })
    }

    /// Why a rule is in its state; `None` if there is none of that name.
    pub fn explain(&self, rule: &str) -> Option<Explanation> {
        let detail = self.detail(rule)?;
        let entries = self.entries_of(rule);
        let empty = Default::default();
        let all = self.policy().map_or(&empty, |p| &p.entries);
        let others = || all.values().filter(|o| entries.iter().all(|e| e.rule.rule != o.rule.rule));
        let mut blocked_by: Vec<String> = others()
            .filter(|o| !self.device.entries.contains_key(&o.id))
            .filter(|o| entries.iter().any(|e| precedence(o) < precedence(e) && o.overlaps(e)))
            .filter_map(|o| self.name(o.rule.rule))
            .collect();
        blocked_by.dedup();
        let mut overrides: Vec<String> = others()
            .filter(|o| self.device.entries.contains_key(&o.id))
            .filter(|o| entries.iter().any(|e| precedence(e) < precedence(o) && o.overlaps(e)))
            .filter_map(|o| self.name(o.rule.rule))
            .collect();
        overrides.dedup();
        let reason = entries.iter().find_map(|e| self.placement.get(&e.id).and_then(|p| p.out.clone()));
        let summary = self.summary(&detail.rule);
        let remedy = reason.as_ref().map(|r| self.remedy(r));
        Some(Explanation { detail, summary, blocked_by, overrides, remedy })
    }

    fn entries_of(&self, rule: &str) -> Vec<&Entry> {
        let Some(policy) = self.policy() else {
            return Vec::new();
        };
        let ids = policy.rules.get(rule).map_or(&[][..], |r| &r.entries);
        ids.iter().filter_map(|id| policy.entries.get(id)).collect()
    }

    fn place(&self, entry: &Entry) -> EntryPlace {
        let placement = self.placement.get(&entry.id);
        let place = if self.device.entries.contains_key(&entry.id) {
            "device"
        } else if placement.is_some_and(|p| p.cover.is_some()) {
            "punt"
        } else if self.host.entries.contains_key(&entry.id) {
            "host"
        } else {
            "nowhere"
        };
        let hits = self.hits.get(&entry.id).copied().unwrap_or_default();
        let reason = placement.and_then(|p| p.out.as_ref());
        EntryPlace {
            entry: entry.id,
            table: crate::words::table(entry.table).to_owned(),
            scope: entry.scope,
            matches: crate::words::matches(entry.table, &entry.matches),
            action: crate::words::action(entry.table, &entry.action),
            place: place.to_owned(),
            reason: reason.map(|r| reason_text(r, |n| self.name(n))),
            hits_device: hits.device,
            hits_host: hits.host,
        }
    }

    fn summary(&self, rule: &RuleReport) -> String {
        let why = rule.reason.as_deref().unwrap_or("no reason given");
        match rule.state {
            RuleState::Requested => format!("wanted, and not sure to be in force: {why}"),
            RuleState::Validated => "compiled; not staged yet".to_owned(),
            RuleState::Installed => "the device took all its entries; not read back yet".to_owned(),
            RuleState::Confirmed => {
                "all its entries were read back from the device; no packet was seen to hit them yet"
                    .to_owned()
            }
            RuleState::Proven => "in the device, and a packet was judged by it there".to_owned(),
            RuleState::Software => {
                format!("{} entries in the device, the host path does the rest: {why}", rule.entries)
            }
            RuleState::Refused => format!("not in force: {why}"),
        }
    }

    fn remedy(&self, reason: &InstallReason) -> String {
        match reason {
            InstallReason::TableFull { table, used, limit } => format!(
                "make room: {used} of {limit} entries of table {table} are taken; remove rules there, write this one with fewer entries, or use a profile with more"
            ),
            InstallReason::BucketFull { table, .. } => {
                format!("table {table} has room, but not for this key; another key or another profile")
            }
            InstallReason::BlockedBy { rule } => format!(
                "bring {} into the device, or change one of the two so that they do not overlap",
                self.name(*rule).unwrap_or_else(|| rule.to_string())
            ),
            InstallReason::MemoryFull | InstallReason::CounterFull => {
                "remove rules: the device has no memory or counter left".to_owned()
            }
            InstallReason::UnsupportedMatch { .. }
            | InstallReason::UnsupportedAction { .. }
            | InstallReason::UnsupportedCombination => {
                "this device cannot do it; another profile or device".to_owned()
            }
            _ => {
                "none by configuration; the device refused, it is tried again with the next change".to_owned()
            }
        }
    }
}
