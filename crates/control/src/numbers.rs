//! Numbers of rules, entries, ENIs and groups: given by the controller, kept over restarts, and not given again while anything
//! in a device may still bear them.
//!
//! An entry keeps its id as long as its content stays, so that the same desired state is the same set of entries for ever.

use crate::compile::{CompileError, Compiled, CompiledRule, Draft, Numbering, Scope};
use contract::{Entry, EntryId, RuleRef, TableId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of one rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleRecord {
    pub number: u32,
    pub revision: u32,
    pub entries: Vec<Entry>,
}

/// The highest numbers given so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub rule: u32,
    pub entry: u32,
    pub eni: u16,
    pub group: u32,
    pub version: u64,
    pub session: u64,
    pub revision: u64,
}

/// All numbers in use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    pub counters: Counters,
    pub rules: BTreeMap<String, RuleRecord>,
    pub enis: BTreeMap<String, u16>,
    pub groups: BTreeMap<String, u32>,
    /// Rules whose record must be written.
    pub dirty: BTreeSet<String>,
}

/// One rule of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyRule {
    pub reference: RuleRef,
    pub table: TableId,
    pub priority: u32,
    pub hardware_only: bool,
    pub entries: Vec<EntryId>,
}

/// A compiled and numbered desired state: what the host path holds in full, and the device as far as it fits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Policy {
    pub revision: u64,
    pub entries: BTreeMap<EntryId, Entry>,
    pub rules: BTreeMap<String, PolicyRule>,
    pub scopes: BTreeSet<Scope>,
    pub enis: BTreeMap<String, u16>,
}

impl Policy {
    /// The name of the rule with this number.
    pub fn name(&self, number: u32) -> Option<&str> {
        let mut rules = self.rules.iter();
        let found = rules.find(|(_, r)| r.reference.rule == number);
        found.map(|(name, _)| name.as_str())
    }
}

impl Numbering for Numbers {
    fn eni(&mut self, name: &str) -> Result<u16, CompileError> {
        if let Some(number) = self.enis.get(name) {
            return Ok(*number);
        }
        let used: BTreeSet<u16> = self.enis.values().copied().collect();
        let last = self.counters.eni;
        let number = (last.saturating_add(1)..=u16::MAX)
            .chain(1..=last)
            .find(|n| !used.contains(n))
            .ok_or(CompileError::NoNumber { kind: "eni" })?;
        self.counters.eni = number;
        self.enis.insert(name.to_owned(), number);
        Ok(number)
    }

    fn group(&mut self, name: &str) -> Result<u32, CompileError> {
        if let Some(number) = self.groups.get(name) {
            return Ok(*number);
        }
        let number = next(&mut self.counters.group, "acl_group")?;
        self.groups.insert(name.to_owned(), number);
        Ok(number)
    }
}

impl Numbers {
    /// Numbers what was compiled.
    pub fn policy(&mut self, compiled: Compiled, revision: u64) -> Result<Policy, CompileError> {
        let mut policy =
            Policy { revision, scopes: compiled.scopes, enis: compiled.enis, ..Policy::default() };
        for rule in compiled.rules {
            let (numbered, entries) = self.rule(&rule)?;
            policy.entries.extend(entries.into_iter().map(|e| (e.id, e)));
            policy.rules.insert(rule.name, numbered);
        }
        Ok(policy)
    }

    /// An id for an entry that stands for no part of the desired state (a punt entry).
    pub fn entry(&mut self) -> Result<EntryId, CompileError> {
        next(&mut self.counters.entry, "entry").map(EntryId)
    }

    fn rule(&mut self, rule: &CompiledRule) -> Result<(PolicyRule, Vec<Entry>), CompileError> {
        let record = match self.rules.get_mut(&rule.name) {
            Some(record) => record,
            None => {
                let number = next(&mut self.counters.rule, "rule")?;
                self.rules.entry(rule.name.clone()).or_insert(RuleRecord {
                    number,
                    revision: 0,
                    entries: Vec::new(),
                })
            }
        };
        let known: BTreeMap<Draft, Entry> = record.entries.iter().map(|e| (content(e), e.clone())).collect();
        let changed = rule.drafts.iter().any(|d| !known.contains_key(d));
        if changed {
            record.revision += 1;
            self.dirty.insert(rule.name.clone());
        }
        let reference = RuleRef { rule: record.number, revision: record.revision };
        let mut entries = Vec::new();
        for draft in &rule.drafts {
            let entry = match known.get(draft) {
                Some(entry) => entry.clone(),
                None => {
                    let entry = Entry {
                        id: EntryId(next(&mut self.counters.entry, "entry")?),
                        rule: reference,
                        table: draft.table,
                        scope: draft.scope,
                        priority: draft.priority,
                        matches: draft.matches.clone(),
                        action: draft.action.clone(),
                    };
                    record.entries.push(entry.clone());
                    entry
                }
            };
            entries.push(entry);
        }
        let numbered = PolicyRule {
            reference,
            table: rule.table,
            priority: rule.priority,
            hardware_only: rule.hardware_only,
            entries: entries.iter().map(|e| e.id).collect(),
        };
        Ok((numbered, entries))
    }

    /// Gives up all numbers that these policies do not use; nothing in the device bears them any more.
    pub fn prune(&mut self, keep: &[&Policy]) {
        let wanted = |id: &EntryId| keep.iter().any(|p| p.entries.contains_key(id));
        let dirty = &mut self.dirty;
        self.rules.retain(|name, record| {
            let before = record.entries.len();
            record.entries.retain(|e| wanted(&e.id));
            if record.entries.len() != before {
                dirty.insert(name.clone());
            }
            let kept = keep.iter().any(|p| p.rules.contains_key(name));
            if !kept {
                dirty.insert(name.clone());
            }
            kept
        });
        self.enis.retain(|name, _| keep.iter().any(|p| p.enis.contains_key(name)));
        let scopes: BTreeSet<Scope> = keep.iter().flat_map(|p| p.scopes.iter().copied()).collect();
        self.groups.retain(|_, number| scopes.contains(&(contract::schema::vnet::ACL, *number)));
    }
}

fn next(counter: &mut u32, kind: &'static str) -> Result<u32, CompileError> {
    *counter = counter.checked_add(1).ok_or(CompileError::NoNumber { kind })?;
    Ok(*counter)
}

fn content(entry: &Entry) -> Draft {
    Draft {
        table: entry.table,
        scope: entry.scope,
        priority: entry.priority,
        matches: entry.matches.clone(),
        action: entry.action.clone(),
    }
}
