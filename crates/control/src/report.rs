//! What the controller says of itself: rules, differences, its own state.

use crate::compile::{CompileError, compile};
use crate::controller::{Accepted, Controller, Phase, ResetReport};
use crate::numbers::{Policy, PolicyRule};
use crate::plan::View;
use crate::rule::{RuleReport, RuleStatus};
use contract::{EntryId, Version};
use model::Desired;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::Store;

impl<S: Store> Controller<S> {
    /// Checks a change without accepting it, and says what it would do to the rules in force.
    ///
    /// # Errors
    /// [`CompileError`] if it does not compile.
    pub fn dry_run(&self, desired: &Desired) -> Result<Vec<RuleChange>, CompileError> {
        let mut numbers = self.numbers.clone();
        let compiled = compile(desired, &self.ports_for(desired), &mut numbers)?;
        let policy = numbers.policy(compiled, 0)?;
        let empty = Policy::default();
        let before = self.policy().map_or(&empty, |p| &**p);
        let mut changes = Vec::new();
        for (name, rule) in &policy.rules {
            match before.rules.get(name) {
                None => changes.push(RuleChange::added(name)),
                Some(old) if old.entries != rule.entries => changes.push(RuleChange::changed(name)),
                Some(_) => {}
            }
        }
        let gone = before.rules.keys().filter(|n| !policy.rules.contains_key(*n));
        changes.extend(gone.map(|n| RuleChange::removed(n)));
        Ok(changes)
    }

    /// All rules that are wanted, in the order of a packet's way, and those that were refused.
    pub fn rules(&self) -> Vec<RuleReport> {
        let Some(policy) = self.policy() else {
            return Vec::new();
        };
        let mut rules: Vec<(RuleReport, contract::TableId)> = Vec::new();
        for (name, status) in &self.refused {
            let policy = self.current.as_ref().and_then(|a| a.policy.as_ref());
            if policy.is_none_or(|p| !p.rules.contains_key(name)) {
                rules.push((self.report(name, status, None), contract::TableId(0)));
            }
        }
        for (name, rule) in &policy.rules {
            if let Some(status) = self.statuses.get(name) {
                rules.push((self.report(name, status, Some(rule)), rule.table));
            }
        }
        rules.sort_by(|(a, s), (b, t)| (s, a.priority, &a.id).cmp(&(t, b.priority, &b.id)));
        rules.into_iter().map(|(r, _)| r).collect()
    }

    /// Names of rules by the numbers that entries and traces carry.
    pub fn names(&self) -> BTreeMap<u32, String> {
        self.numbers.rules.iter().map(|(name, r)| (r.number, name.clone())).collect()
    }

    /// Where wanted and found differ; empty once all is reconciled.
    pub fn diff(&self) -> Diff {
        let mut lines = Vec::new();
        if let (true, Some(policy)) = (self.known, self.target().and_then(|a| a.policy.as_ref())) {
            let same = self.current.as_ref().and_then(|a| a.policy.as_ref()) == Some(policy);
            let mut compare = |place, found: &View, expected: &dyn Fn(&EntryId) -> bool| {
                for (id, entry) in &policy.entries {
                    if found.entries.get(id) != Some(entry) && expected(id) {
                        lines.push(self.line(place, "missing", entry));
                    }
                }
                for (id, entry) in &found.entries {
                    let stands_in = self.placement.values().any(|p| p.cover == Some(*id));
                    if policy.entries.get(id) != Some(entry) && !stands_in {
                        lines.push(self.line(place, "extra", entry));
                    }
                }
            };
            compare("host", &self.host, &|_| true);
            let in_software = |id: &EntryId| self.placement.get(id).is_some_and(|p| p.out.is_some());
            compare("device", &self.device, &|id| !(same && in_software(id)));
        }
        Diff { known: self.known, lines }
    }

    fn line(&self, place: &str, what: &str, entry: &contract::Entry) -> DiffLine {
        let name = self.name(entry.rule.rule);
        DiffLine {
            rule: name.unwrap_or_else(|| format!("unknown rule {}", entry.rule.rule)),
            place: place.to_owned(),
            what: what.to_owned(),
            entry: entry.id,
            table: crate::words::table(entry.table).to_owned(),
            matches: crate::words::matches(entry.table, &entry.matches),
            action: crate::words::action(entry.table, &entry.action),
        }
    }

    /// The controller as a whole.
    pub fn status(&self) -> ControlStatus {
        let mut rules: BTreeMap<String, u64> = BTreeMap::new();
        for rule in self.rules() {
            *rules.entry(rule.state.word().to_owned()).or_default() += 1;
        }
        let revision = |a: &Option<Accepted>| a.as_ref().map(|a| a.revision.revision);
        ControlStatus {
            phase: self.phase_word().to_owned(),
            settled: self.is_settled(),
            revision: revision(&self.current),
            pending: revision(&self.next).or(revision(&self.active)),
            generation: self.state.as_ref().map(|s| s.generation),
            version: self.state.as_ref().map(|s| s.version),
            session: self.numbers.counters.session,
            rules,
            last_reset: self.last_reset.clone(),
            last_error: self.last_error.clone(),
        }
    }

    fn phase_word(&self) -> &'static str {
        match self.phase {
            Phase::Down { .. } => "disconnected",
            Phase::Look | Phase::Greet => "greeting",
            Phase::Read => "reading",
            Phase::Idle => "idle",
            Phase::Audit => "auditing",
            Phase::Stage => "staging",
            Phase::Commit => "committing",
            Phase::Settle { .. } => "settling",
            Phase::Verify => "verifying",
            Phase::Arm => "arming",
            Phase::Drop(_) => "dropping",
            Phase::Fenced => "fenced",
        }
    }

    fn report(&self, name: &str, status: &RuleStatus, rule: Option<&PolicyRule>) -> RuleReport {
        let entries = rule.map_or(&[][..], |r| &r.entries);
        let inside = entries.iter().filter(|id| self.device.entries.contains_key(id)).count();
        let (device, host) = self.rule_hits(status, entries);
        RuleReport {
            id: name.to_owned(),
            number: status.reference.rule,
            revision: status.reference.revision,
            table: crate::words::table(rule.map_or(contract::schema::vnet::ACL, |r| r.table)).to_owned(),
            priority: rule.map_or(0, |r| r.priority),
            state: status.state(),
            reason: status.reason().map(str::to_owned),
            hits_device: device,
            hits_host: host,
            entries: format!("{inside}/{}", entries.len()),
            since: status.since(),
        }
    }

    /// Hits of a rule in the device and in the host path.
    pub(crate) fn rule_hits(&self, status: &RuleStatus, entries: &[EntryId]) -> (u64, u64) {
        let hits = entries.iter().filter_map(|id| self.hits.get(id));
        hits.fold(status.retired, |(device, host), h| (device + h.device, host + h.host))
    }
}

/// What a change would do to a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleChange {
    /// The rule's name.
    pub rule: String,
    /// `added`, `changed`, `removed`.
    pub what: String,
}

impl RuleChange {
    fn added(rule: &str) -> RuleChange {
        RuleChange { rule: rule.to_owned(), what: "added".to_owned() }
    }

    fn changed(rule: &str) -> RuleChange {
        RuleChange { rule: rule.to_owned(), what: "changed".to_owned() }
    }

    fn removed(rule: &str) -> RuleChange {
        RuleChange { rule: rule.to_owned(), what: "removed".to_owned() }
    }
}

/// Where wanted and found differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// Whether the device's and the host path's entries are known; without that there are no lines.
    pub known: bool,
    /// The differences.
    pub lines: Vec<DiffLine>,
}

/// One entry that is missing, or that nobody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffLine {
    /// The rule's name.
    pub rule: String,
    /// `device` or `host`.
    pub place: String,
    /// `missing` or `extra`.
    pub what: String,
    /// The entry's id.
    pub entry: EntryId,
    /// The table's name.
    pub table: String,
    /// Its key in words.
    pub matches: String,
    /// Its action in words.
    pub action: String,
}

/// The controller as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlStatus {
    /// What it does: `idle`, `staging`, `disconnected` ...
    pub phase: String,
    /// Whether all that was asked for is done and read back.
    pub settled: bool,
    /// The revision in force.
    pub revision: Option<u64>,
    /// The revision under way.
    pub pending: Option<u64>,
    /// The device's generation, as last seen.
    pub generation: Option<contract::Generation>,
    /// The device's version, as last seen.
    pub version: Option<Version>,
    /// The controller's session.
    pub session: u64,
    /// Rules by state.
    pub rules: BTreeMap<String, u64>,
    /// The last reset.
    pub last_reset: Option<ResetReport>,
    /// The last failure, and what it was about.
    pub last_error: Option<String>,
}
