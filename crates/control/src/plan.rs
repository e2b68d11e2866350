//! The safe set: which entries the device may hold when not all of them fit.
//!
//! Promise: for every scope of every table and every key, the device's lookup gives what the full table gives, or a punt.
//! It holds when no entry of the device comes after one that overlaps it and is neither in the device nor covered by a punt entry of
//! the same matches, and when only complete scopes decide a miss.
//!
//! The plan is a loop with the device: [`Plan::next`] gives changes to stage, [`Plan::done`] takes what became of each, until no
//! change is left. Nothing is assumed: what counts is what the device answered.
//!
//! Where old and new entries do not fit together (the room of a committed entry is free only after the commit), the plan keeps
//! what is right and small: entries that new ones override leave, the scope's misses punt, the commit switches, and a second
//! transaction of the same policy grows into the room ([`Plan::may_grow`]).

use crate::compile::{Scope, precedence};
use crate::numbers::{Numbers, Policy};
use contract::schema::PUNT;
use contract::{Action, Entry, EntryId, InstallReason, Miss, Op, TableId, Target};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where an entry of the policy is, as seen from the device's tables after the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not asked for yet.
    Untried,
    /// Committed before, and it stays.
    Kept,
    /// Staged in this transaction.
    Staged,
    /// Not in.
    Out {
        /// Why.
        reason: InstallReason,
        /// It was committed before and leaves with this transaction.
        leaving: bool,
    },
}

/// Whether a punt entry stands in for an entry that is out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cover {
    None,
    /// To be staged next.
    Wanted(EntryId),
    /// In the device, committed or staged.
    In(EntryId),
    /// The device refused it.
    Failed,
}

#[derive(Debug, Clone)]
struct Item {
    place: Place,
    cover: Cover,
}

impl Item {
    fn is_in(&self) -> bool {
        matches!(self.place, Place::Kept | Place::Staged)
    }

    fn is_covered(&self) -> bool {
        matches!(self.cover, Cover::Wanted(_) | Cover::In(_))
    }
}

/// What is known of one set of tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct View {
    pub entries: BTreeMap<EntryId, Entry>,
    /// Scopes that decide a miss; `None`: not known.
    pub deciding: Option<BTreeSet<Scope>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Delete,
    Insert,
    Settle,
    Cover,
    Fill,
    Promote,
    Misses,
    Done,
}

/// One transaction in the making.
#[derive(Debug)]
pub(crate) struct Plan {
    pub policy: Arc<Policy>,
    host: View,
    device: View,
    items: BTreeMap<EntryId, Item>,
    /// The entries of each scope, the first asked first.
    scopes: Arc<BTreeMap<Scope, Vec<EntryId>>>,
    punts: BTreeMap<EntryId, Entry>,
    /// Entries of the device after the commit.
    after: BTreeMap<EntryId, Entry>,
    used: BTreeMap<TableId, u64>,
    limits: BTreeMap<TableId, u64>,
    /// Room that was given back within this transaction, by table.
    freed: BTreeMap<TableId, u64>,
    promoted: Vec<EntryId>,
    stage: Stage,
    staged: bool,
    failed: Option<InstallReason>,
}

impl Plan {
    /// A plan from what host path and device hold to the policy.
    ///
    /// `limits`: tables with a bound. `known`: why entries were out before. `barred`: entries that must not be in
    /// the device, and why.
    pub fn new(
        policy: Arc<Policy>,
        host: &View,
        device: &View,
        limits: BTreeMap<TableId, u64>,
        known: &BTreeMap<EntryId, Placement>,
        barred: &BTreeMap<EntryId, InstallReason>,
    ) -> Plan {
        let mut scopes: BTreeMap<Scope, Vec<EntryId>> = BTreeMap::new();
        for entry in policy.entries.values() {
            let scope = (entry.table, entry.scope);
            scopes.entry(scope).or_default().push(entry.id);
        }
        for ids in scopes.values_mut() {
            ids.sort_by_key(|id| precedence(&policy.entries[id]));
        }
        let mut used = BTreeMap::new();
        for entry in device.entries.values() {
            *used.entry(entry.table).or_default() += 1;
        }
        let items = policy
            .entries
            .iter()
            .map(|(id, entry)| {
                let place = if let Some(reason) = barred.get(id) {
                    Place::Out { reason: reason.clone(), leaving: device.entries.contains_key(id) }
                } else if device.entries.get(id) == Some(entry) {
                    Place::Kept
                } else {
                    Place::Untried
                };
                let item = Item { place, cover: Cover::None };
                (*id, item)
            })
            .collect();
        let mut plan = Plan {
            host: host.clone(),
            device: device.clone(),
            items,
            scopes: Arc::new(scopes),
            punts: BTreeMap::new(),
            after: device.entries.clone(),
            used,
            limits,
            freed: BTreeMap::new(),
            promoted: Vec::new(),
            stage: Stage::Delete,
            staged: false,
            failed: None,
            policy,
        };
        plan.adopt_punts(known);
        plan
    }

    /// Finds the punt entries of an earlier plan that still stand for an entry of the policy.
    fn adopt_punts(&mut self, known: &BTreeMap<EntryId, Placement>) {
        let punts = self.device.entries.values();
        for punt in punts.filter(|e| e.action.id == PUNT) {
            let Some(ids) = self.scopes.get(&(punt.table, punt.scope)) else {
                continue;
            };
            let covered = ids.iter().find(|id| {
                let entry = &self.policy.entries[id];
                entry.rule == punt.rule && entry.priority == punt.priority && entry.matches == punt.matches
            });
            let Some(id) = covered else { continue };
            let reason = known.get(id).and_then(|p| p.out.clone());
            let reason = reason.unwrap_or_else(|| self.full(punt.table));
            let Some(item) = self.items.get_mut(id) else {
                continue;
            };
            if !item.is_in() && item.cover == Cover::None {
                item.cover = Cover::In(punt.id);
                if item.place == Place::Untried {
                    item.place = Place::Out { reason, leaving: false };
                }
                self.punts.insert(punt.id, punt.clone());
            }
        }
    }

    /// What the table would say to one more entry.
    fn full(&self, table: TableId) -> InstallReason {
        let used = self.used.get(&table).copied().unwrap_or(0);
        InstallReason::TableFull {
            table: crate::words::table(table).to_owned(),
            used,
            limit: self.limits.get(&table).copied().unwrap_or(used),
        }
    }

    /// The next changes to stage, in this order; empty when the plan is complete.
    ///
    /// # Errors
    /// The reason why this plan cannot be carried out at all.
    pub fn next(&mut self, numbers: &mut Numbers) -> Result<Vec<Op>, InstallReason> {
        loop {
            if let Some(reason) = &self.failed {
                return Err(reason.clone());
            }
            let ops = match self.stage {
                Stage::Delete => {
                    self.stage = Stage::Insert;
                    self.deletes()
                }
                Stage::Insert => {
                    self.stage = Stage::Settle;
                    self.inserts()
                }
                Stage::Settle => {
                    let ops = self.settle(numbers)?;
                    let covers = self.items.values().any(|i| matches!(i.cover, Cover::Wanted(_)));
                    self.stage = if covers || !ops.is_empty() { Stage::Cover } else { Stage::Fill };
                    ops
                }
                Stage::Cover => {
                    self.stage = Stage::Settle;
                    self.covers()
                }
                Stage::Fill => {
                    let ops = self.fill();
                    if ops.is_empty() {
                        self.stage = Stage::Promote;
                        self.promote()
                    } else {
                        self.stage = Stage::Settle;
                        ops
                    }
                }
                Stage::Promote => {
                    let promoted = std::mem::take(&mut self.promoted);
                    self.stage = if promoted.is_empty() { Stage::Misses } else { Stage::Settle };
                    promoted.into_iter().map(|id| self.insert(id)).collect()
                }
                Stage::Misses => {
                    self.stage = Stage::Done;
                    self.misses()
                }
                Stage::Done => return Ok(Vec::new()),
            };
            if !ops.is_empty() {
                self.staged = true;
                return Ok(ops);
            }
        }
    }

    /// Takes the device's answer to one change.
    pub fn done(&mut self, op: &Op, outcome: Result<(), InstallReason>) {
        match (op, outcome) {
            (Op::Insert { target: Target::Device, entry }, Ok(())) => {
                *self.used.entry(entry.table).or_default() += 1;
                let freed = self.freed.entry(entry.table).or_default();
                *freed = freed.saturating_sub(1);
                self.after.insert(entry.id, entry.clone());
                self.placed(entry.id, Place::Staged, true);
            }
            (Op::Insert { target: Target::Device, entry }, Err(reason)) => {
                self.freed.remove(&entry.table);
                let place = Place::Out { reason, leaving: false };
                self.placed(entry.id, place, false);
            }
            (Op::Delete { target: Target::Device, table, id }, Ok(())) => {
                self.after.remove(id);
                if !self.device.entries.contains_key(id) {
                    *self.freed.entry(*table).or_default() += 1;
                    if let Some(used) = self.used.get_mut(table) {
                        *used = used.saturating_sub(1);
                    }
                }
            }
            (_, Ok(())) => {}
            // The host path holds everything and misses cost nothing: a refusal there leaves nothing to plan with.
            (_, Err(reason)) => self.failed = Some(reason),
        }
    }

    fn placed(&mut self, id: EntryId, place: Place, ok: bool) {
        if let Some(item) = self.items.get_mut(&id) {
            item.place = place;
            return;
        }
        let wanted = |item: &&mut Item| item.cover == Cover::Wanted(id);
        if let Some(item) = self.items.values_mut().find(wanted) {
            item.cover = if ok { Cover::In(id) } else { Cover::Failed };
        }
    }

    fn delete(&self, target: Target, entry: &Entry) -> Op {
        Op::Delete { target, table: entry.table, id: entry.id }
    }

    fn insert(&self, id: EntryId) -> Op {
        Op::Insert { target: Target::Device, entry: self.policy.entries[&id].clone() }
    }

    fn deletes(&self) -> Vec<Op> {
        let unwanted = |e: &&Entry| self.policy.entries.get(&e.id) != Some(*e);
        let leaving = |e: &Entry| {
            let item = self.items.get(&e.id);
            item.is_some_and(|i| matches!(i.place, Place::Out { leaving: true, .. }))
        };
        let host = self.host.entries.values().filter(unwanted);
        let device = self.device.entries.values();
        let device = device
            .filter(|e| (unwanted(e) || leaving(e)) && !self.punts.contains_key(&e.id))
            .map(|e| self.delete(Target::Device, e));
        host.map(|e| self.delete(Target::Host, e)).chain(device).collect()
    }

    /// The last tables of a packet's way first, so that what refers comes after what it refers to; in a table the oldest first.
    fn inserts(&self) -> Vec<Op> {
        let host = self.policy.entries.values();
        let host = host.filter(|e| self.host.entries.get(&e.id) != Some(e));
        let mut ops: Vec<Op> = host.map(|e| Op::Insert { target: Target::Host, entry: e.clone() }).collect();
        let mut missing: Vec<&Entry> =
            self.policy.entries.values().filter(|e| self.items[&e.id].place == Place::Untried).collect();
        missing.sort_by_key(|e| (Reverse(e.table), e.id));
        ops.extend(missing.into_iter().map(|e| self.insert(e.id)));
        ops
    }

    /// One pass over all scopes: whatever comes after an entry that is out and uncovered leaves, unless a punt entry can stand in.
    /// An entry that leaves comes later in the pass, so that its own effect is seen in the same pass.
    fn settle(&mut self, numbers: &mut Numbers) -> Result<Vec<Op>, InstallReason> {
        let policy = Arc::clone(&self.policy);
        let scopes = Arc::clone(&self.scopes);
        let mut gone: Vec<EntryId> = Vec::new();
        let mut room: BTreeMap<TableId, u64> = BTreeMap::new();
        for ((table, _), ids) in scopes.iter() {
            for (at, id) in ids.iter().enumerate() {
                let item = &self.items[id];
                if item.is_in() || item.is_covered() {
                    continue;
                }
                let entry = &policy.entries[id];
                let blocked: Vec<EntryId> = ids[at + 1..]
                    .iter()
                    .filter(|b| self.items[b].is_in() && entry.overlaps(&policy.entries[b]))
                    .copied()
                    .collect();
                if blocked.is_empty() {
                    continue;
                }
                let room = room.entry(*table).or_insert_with(|| self.room(*table));
                let staged = |b: &&EntryId| self.items[b].place == Place::Staged;
                let victim = blocked.iter().rev().find(staged).copied();
                let leave = match (item.cover, victim) {
                    (Cover::None, _) if *room > 0 => {
                        *room -= 1;
                        None
                    }
                    (Cover::None, Some(victim)) if blocked.len() > 1 => Some(vec![victim]),
                    _ => Some(blocked.clone()),
                };
                let covered = leave.as_ref().is_none_or(|l| l.len() < blocked.len());
                if covered {
                    let punt = Entry {
                        id: numbers.entry().map_err(|_| InstallReason::MemoryFull)?,
                        action: Action { id: PUNT, params: Vec::new() },
                        ..entry.clone()
                    };
                    if let Some(item) = self.items.get_mut(id) {
                        item.cover = Cover::Wanted(punt.id);
                    }
                    self.punts.insert(punt.id, punt);
                }
                for id in leave.unwrap_or_default() {
                    if let Some(item) = self.items.get_mut(&id) {
                        item.place = Place::Out {
                            reason: InstallReason::BlockedBy { rule: entry.rule.rule },
                            leaving: item.place == Place::Kept,
                        };
                    }
                    gone.push(id);
                }
            }
        }
        Ok(gone.iter().map(|id| self.delete(Target::Device, &policy.entries[id])).collect())
    }

    fn room(&self, table: TableId) -> u64 {
        let used = self.used.get(&table).copied().unwrap_or(0);
        self.limits.get(&table).map_or(u64::MAX, |limit| limit.saturating_sub(used))
    }

    fn covers(&self) -> Vec<Op> {
        let wanted = self.items.values().filter_map(|i| match i.cover {
            Cover::Wanted(id) => self.punts.get(&id),
            _ => None,
        });
        wanted.map(|punt| Op::Insert { target: Target::Device, entry: punt.clone() }).collect()
    }

    /// Offers room that came back to entries that had none, the oldest first, if nothing that is out overrides them.
    fn fill(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut tables: BTreeSet<TableId> = self.freed.keys().copied().collect();
        tables.retain(|t| self.freed[t] > 0);
        for (id, entry) in &self.policy.entries {
            let item = &self.items[id];
            let outside =
                matches!(&item.place, Place::Out { reason, leaving: false } if may_come_back(reason));
            // One entry a table and round: what may follow depends on its fate.
            if tables.contains(&entry.table)
                && outside
                && item.cover == Cover::None
                && !self.is_blocked(entry)
            {
                tables.remove(&entry.table);
                ops.push(self.insert(*id));
            }
        }
        ops
    }

    fn is_blocked(&self, entry: &Entry) -> bool {
        self.blockers(entry).next().is_some()
    }

    /// What overrides an entry somewhere and is neither in the device nor covered.
    fn blockers<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a Entry> {
        let before = self.scopes[&(entry.table, entry.scope)].iter().take_while(|id| **id != entry.id);
        before
            .filter(|id| !self.items[id].is_in() && !self.items[id].is_covered())
            .map(|id| &self.policy.entries[id])
            .filter(|other| other.overlaps(entry))
    }

    /// Why an entry is out, as of now: what it gave way to may have come in since, and something else still block it.
    fn reason_now(&self, id: &EntryId, reason: &InstallReason) -> InstallReason {
        let InstallReason::BlockedBy { rule } = reason else { return reason.clone() };
        let entry = &self.policy.entries[id];
        if self.blockers(entry).any(|other| other.rule.rule == *rule) {
            return reason.clone();
        }
        let other = self.blockers(entry).next().map(|other| other.rule.rule);
        InstallReason::BlockedBy { rule: other.unwrap_or(*rule) }
    }

    /// Takes punt entries away whose own entry would fit now; that entry is staged in the next round, since it has the same key.
    fn promote(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let mut room: BTreeMap<TableId, u64> = BTreeMap::new();
        for (id, entry) in &self.policy.entries {
            let Some(item) = self.items.get_mut(id) else {
                continue;
            };
            let Cover::In(punt) = item.cover else { continue };
            let Some(punt) = self.device.entries.get(&punt) else {
                continue;
            };
            let limit = self.limits.get(&entry.table).copied().unwrap_or(u64::MAX);
            let used = self.used.get(&entry.table).copied().unwrap_or(0);
            let room = room.entry(entry.table).or_insert(limit.saturating_sub(used));
            if *room == 0 {
                continue;
            }
            *room -= 1;
            item.cover = Cover::None;
            self.promoted.push(*id);
            ops.push(Op::Delete { target: Target::Device, table: punt.table, id: punt.id });
        }
        ops
    }

    fn misses(&self) -> Vec<Op> {
        let set = |target, view: &View, after: &BTreeSet<Scope>| -> Vec<Op> {
            let scopes: Vec<Scope> = match &view.deciding {
                Some(before) => before.symmetric_difference(after).copied().collect(),
                None => self.policy.scopes.iter().copied().collect(),
            };
            let set = |scope: Scope| Op::SetMiss {
                target,
                table: scope.0,
                scope: scope.1,
                miss: if after.contains(&scope) { Miss::Decide } else { Miss::Punt },
            };
            scopes.into_iter().map(set).collect()
        };
        let mut ops = set(Target::Host, &self.host, &self.policy.scopes);
        ops.extend(set(Target::Device, &self.device, &self.deciding()));
        ops
    }

    /// Scopes of which every entry is in the device, itself or as a punt entry.
    fn deciding(&self) -> BTreeSet<Scope> {
        let complete = |scope: &&Scope| {
            let ids = self.scopes.get(scope);
            ids.into_iter().flatten().all(|id| self.items[id].is_in() || self.items[id].is_covered())
        };
        self.policy.scopes.iter().filter(complete).copied().collect()
    }

    /// The first rule that must be in the device and is not.
    pub fn refused(&self) -> Option<(&str, InstallReason)> {
        let must = self.policy.rules.iter().filter(|(_, r)| r.hardware_only);
        must.flat_map(|(name, rule)| rule.entries.iter().map(move |id| (name, id))).find_map(|(name, id)| {
            match &self.items[id].place {
                Place::Out { reason, .. } => Some((name.as_str(), reason.clone())),
                _ => None,
            }
        })
    }

    /// Whether the commit would change anything.
    pub fn changes(&self) -> bool {
        self.host.entries != self.policy.entries
            || self.device.entries != self.after
            || !self.misses().is_empty()
    }

    /// Whether anything was staged, so that it must be committed or dropped.
    pub fn staged(&self) -> bool {
        self.staged
    }

    /// Whether the commit gives room back to entries that had none.
    pub fn may_grow(&self) -> bool {
        let leaving = |table: TableId| {
            let mut before = self.device.entries.values();
            before.any(|e| e.table == table && !self.after.contains_key(&e.id))
        };
        let outside = self.policy.entries.values().filter(
            |e| matches!(&self.items[&e.id].place, Place::Out { reason, .. } if may_come_back(reason)),
        );
        let tables: BTreeSet<TableId> = outside.map(|e| e.table).collect();
        tables.into_iter().any(leaving)
    }

    /// Whether entries of another policy leave a table in which a rule that must be in the device found no room.
    pub fn gives_way(&self) -> bool {
        let must = self.policy.rules.values().filter(|r| r.hardware_only);
        let out =
            must.flat_map(|r| &r.entries).filter(|id| matches!(self.items[id].place, Place::Out { .. }));
        let tables: BTreeSet<TableId> = out.map(|id| self.policy.entries[id].table).collect();
        let mut foreign = self.device.entries.values().filter(|e| !self.policy.entries.contains_key(&e.id));
        foreign.any(|e| tables.contains(&e.table) && !self.after.contains_key(&e.id))
    }

    /// What host path and device hold after the commit.
    pub fn views(&self) -> (View, View) {
        let host = View { entries: self.policy.entries.clone(), deciding: Some(self.policy.scopes.clone()) };
        let device = View { entries: self.after.clone(), deciding: Some(self.deciding()) };
        (host, device)
    }

    /// Where each entry of the policy is: in the device, or out and why, and the punt entry that stands for it.
    pub fn placement(&self) -> BTreeMap<EntryId, Placement> {
        let place = |id: &EntryId, item: &Item| Placement {
            out: match &item.place {
                Place::Out { reason, .. } => Some(self.reason_now(id, reason)),
                _ => None,
            },
            cover: match item.cover {
                Cover::In(id) => Some(id),
                _ => None,
            },
        };
        self.items.iter().map(|(id, i)| (*id, place(id, i))).collect()
    }
}

/// Where an entry of the policy is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Placement {
    /// Why it is not in the device; `None`: it is.
    pub out: Option<InstallReason>,
    /// The punt entry in the device that stands for it.
    pub cover: Option<EntryId>,
}

/// Whether the reason is that there was no room.
pub(crate) fn lacks_room(reason: &InstallReason) -> bool {
    matches!(
        reason,
        InstallReason::TableFull { .. }
            | InstallReason::BucketFull { .. }
            | InstallReason::MemoryFull
            | InstallReason::CounterFull
    )
}

/// Whether the reason may go away with room: none was there, or none for what overrides it.
fn may_come_back(reason: &InstallReason) -> bool {
    lacks_room(reason) || matches!(reason, InstallReason::BlockedBy { .. })
}
