//! The entries of one executor, as the controller wrote them, and how they become tables that packets are judged by.

use crate::program::View;
use contract::schema::{self, MatchKind, vnet};
use contract::{DumpedEntry, Entry, EntryId, FieldMatch, InstallReason, Miss, TableId, Target, Version};
use functions::prefix::{self, Prefix, Row};
use functions::scope;
use functions::{acl, eni, route};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A part of a table that is built as a whole.
pub type Scope = (TableId, u32);

/// The entries of one executor.
pub struct TableSet {
    target: Target,
    entries: BTreeMap<EntryId, DumpedEntry>,
    scopes: BTreeMap<Scope, BTreeSet<EntryId>>,
    /// Entries of each table.
    used: BTreeMap<TableId, u64>,
    /// Where the key alone decides: which entry has it.
    keys: BTreeMap<(Scope, Vec<FieldMatch>), EntryId>,
    misses: BTreeMap<Scope, Miss>,
}

impl TableSet {
    /// No entries.
    pub fn new(target: Target) -> Self {
        TableSet {
            target,
            entries: BTreeMap::new(),
            scopes: BTreeMap::new(),
            used: BTreeMap::new(),
            keys: BTreeMap::new(),
            misses: BTreeMap::new(),
        }
    }

    /// An entry by its id.
    pub fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(&id).map(|d| &d.entry)
    }

    /// The entries from an id on.
    pub fn from(&self, id: EntryId) -> impl Iterator<Item = &DumpedEntry> {
        self.entries.range(id..).map(|(_, d)| d)
    }

    /// Entries in a table.
    pub fn used(&self, table: TableId) -> u64 {
        self.used.get(&table).copied().unwrap_or(0)
    }

    /// The entry of a longest-prefix or exact table that has the same key.
    pub fn same_key(&self, entry: &Entry) -> Option<EntryId> {
        self.keys.get(&key(entry)?).copied()
    }

    /// Adds an entry.
    pub fn insert(&mut self, entry: Entry, since: Version) -> Scope {
        let scope = (entry.table, entry.scope);
        self.scopes.entry(scope).or_default().insert(entry.id);
        *self.used.entry(entry.table).or_default() += 1;
        if let Some(key) = key(&entry) {
            self.keys.insert(key, entry.id);
        }
        self.entries.insert(entry.id, DumpedEntry { entry, since });
        scope
    }

    /// Removes an entry.
    pub fn remove(&mut self, id: EntryId) -> Option<Scope> {
        let entry = self.entries.remove(&id)?.entry;
        let scope = (entry.table, entry.scope);
        if let Some(ids) = self.scopes.get_mut(&scope) {
            ids.remove(&id);
            if ids.is_empty() {
                self.scopes.remove(&scope);
            }
        }
        if let Some(used) = self.used.get_mut(&entry.table) {
            *used -= 1;
        }
        if let Some(key) = key(&entry) {
            self.keys.remove(&key);
        }
        Some(scope)
    }

    /// All entries, in the order of their ids.
    pub fn into_entries(self) -> impl Iterator<Item = Entry> {
        self.entries.into_values().map(|dumped| dumped.entry)
    }

    /// Sets what a scope answers on a miss.
    pub fn set_miss(&mut self, scope: Scope, miss: Miss) {
        self.misses.insert(scope, miss);
    }

    /// Builds a scope's table anew into `view`. A scope without entries that was never named answers like an absent one.
    pub fn rebuild(&self, scope: Scope, view: &mut View) {
        let named = self.misses.contains_key(&scope) || self.scopes.contains_key(&scope);
        let miss = match (self.misses.get(&scope), self.target) {
            (Some(Miss::Decide), _) | (None, Target::Host) => scope::Miss::Decide,
            (Some(Miss::Punt), _) | (None, Target::Device) => scope::Miss::Punt,
        };
        let entries = self.scopes.get(&scope).into_iter().flatten().map(|id| &self.entries[id].entry);
        let (table, number) = scope;
        match table {
            vnet::ENI => {
                let (armed, unarmed) = (view.enis.armed.clone(), view.enis.unarmed);
                view.enis = eni::Enis::build(entries.map(eni_entry), miss);
                view.enis.armed = armed;
                view.enis.unarmed = unarmed;
            }
            vnet::SOURCE => put(&mut view.sources, number, named, entries, miss, |e| match e.action.id {
                vnet::PERMIT => eni::SourceAction::Permit,
                _ => eni::SourceAction::Punt,
            }),
            vnet::ROUTE => put(&mut view.routes, number, named, entries, miss, |e| match e.action.id {
                vnet::TO_VNET => route::RouteAction::ToVnet(e.action.params[0] as u32),
                vnet::BLACKHOLE => route::RouteAction::Drop,
                _ => route::RouteAction::Punt,
            }),
            vnet::MAPPING => put(&mut view.mappings, number, named, entries, miss, |e| match e.action.id {
                vnet::TO_PORT => route::MappingAction::ToPort {
                    port: e.action.params[0] as u16,
                    mac: mac(e.action.params[1]),
                },
                _ => route::MappingAction::Punt,
            }),
            vnet::ACL if named => {
                view.acl.set(number, Arc::new(acl::Group::build(entries.map(acl_rule), miss)))
            }
            vnet::ACL => {
                view.acl.remove(number);
            }
            _ => {}
        }
    }

    /// Every scope that has entries or an answer of its own.
    pub fn all_scopes(&self) -> BTreeSet<Scope> {
        self.scopes.keys().chain(self.misses.keys()).copied().collect()
    }
}

/// The key of an entry in a table where no two entries may have one; priorities decide in the others.
fn key(entry: &Entry) -> Option<(Scope, Vec<FieldMatch>)> {
    (entry.table != vnet::ACL).then(|| ((entry.table, entry.scope), entry.matches.clone()))
}

fn put<'e, A>(
    scopes: &mut scope::Scopes<prefix::Table<A>>,
    number: u32,
    named: bool,
    entries: impl Iterator<Item = &'e Entry>,
    miss: scope::Miss,
    action: impl Fn(&Entry) -> A,
) {
    if named {
        let rows =
            entries.map(|e| Row { entry: e.id.0, prefix: to_prefix(&e.matches[0]), action: action(e) });
        scopes.set(number, Arc::new(prefix::Table::build(rows, miss)));
    } else {
        scopes.remove(number);
    }
}

/// Checks an entry against the program: its table, key, action and parameters.
pub fn validate(program: &schema::Program, entry: &Entry) -> Result<(), InstallReason> {
    let table = program
        .table(entry.table)
        .ok_or_else(|| InstallReason::UnsupportedMatch { field: format!("table {}", entry.table) })?;
    if entry.matches.len() != table.key.len() {
        let field = format!("{}: {} fields, not {}", table.name, table.key.len(), entry.matches.len());
        return Err(InstallReason::UnsupportedMatch { field });
    }
    for (field, value) in table.key.iter().zip(&entry.matches) {
        let fits = match (field.kind, *value) {
            (MatchKind::Exact | MatchKind::Optional, FieldMatch::Exact(v)) => v >> (field.bits - 1) <= 1,
            (MatchKind::Lpm | MatchKind::Prefix, FieldMatch::Prefix { value, len }) => {
                len <= 128 && value & !contract::prefix_mask(len) == 0
            }
            (MatchKind::Range, FieldMatch::Range { low, high }) => low <= high && high >> field.bits == 0,
            (
                MatchKind::Optional | MatchKind::Prefix | MatchKind::Range | MatchKind::Lpm,
                FieldMatch::Any,
            ) => true,
            _ => false,
        };
        if !fits {
            return Err(InstallReason::UnsupportedMatch { field: format!("{}.{}", table.name, field.name) });
        }
    }
    match table.action(entry.action.id) {
        Some(action) if action.params.len() == entry.action.params.len() => Ok(()),
        Some(action) => {
            Err(InstallReason::UnsupportedAction { action: format!("{} with these parameters", action.name) })
        }
        None => {
            Err(InstallReason::UnsupportedAction { action: format!("{}.{}", table.name, entry.action.id) })
        }
    }
}

fn to_prefix(field: &FieldMatch) -> Prefix {
    match *field {
        FieldMatch::Prefix { value, len } => Prefix { addr: value, len },
        FieldMatch::Exact(value) => Prefix { addr: value, len: 128 },
        _ => Prefix::ANY,
    }
}

fn exact(field: &FieldMatch) -> Option<u128> {
    match *field {
        FieldMatch::Exact(value) => Some(value),
        _ => None,
    }
}

fn ports(field: &FieldMatch) -> acl::PortRange {
    match *field {
        FieldMatch::Range { low, high } => acl::PortRange { lo: low as u16, hi: high as u16 },
        _ => acl::PortRange::ANY,
    }
}

fn mac(bits: u128) -> [u8; 6] {
    let bytes = bits.to_be_bytes();
    bytes[10..].try_into().expect("six bytes")
}

fn acl_rule(e: &Entry) -> acl::Rule {
    let (action, terminating) = match e.action.id {
        vnet::ALLOW => (acl::Action::Allow, false),
        vnet::ALLOW_TERMINATING => (acl::Action::Allow, true),
        vnet::DENY => (acl::Action::Deny, false),
        vnet::DENY_TERMINATING => (acl::Action::Deny, true),
        _ => (acl::Action::Punt, true),
    };
    acl::Rule {
        entry: e.id.0,
        priority: e.priority,
        protocol: exact(&e.matches[0]).map(|p| p as u8),
        src: to_prefix(&e.matches[1]),
        dst: to_prefix(&e.matches[2]),
        sport: ports(&e.matches[3]),
        dport: ports(&e.matches[4]),
        action,
        terminating,
    }
}

fn eni_entry(e: &Entry) -> eni::Entry {
    let port = exact(&e.matches[0]).unwrap_or_default() as u16;
    if e.action.id != vnet::SET_ENI {
        return eni::Entry::Punt { entry: e.id.0, port };
    }
    let p = &e.action.params;
    let groups = |first: usize| -> eni::StageGroups {
        let family = |first: usize| std::array::from_fn(|stage| p[first + stage] as u32);
        [family(first), family(first + vnet::STAGES)]
    };
    eni::Entry::Eni(eni::Eni {
        entry: e.id.0,
        port,
        eni: p[0] as u16,
        mac: mac(p[1]),
        vnet: p[2] as u32,
        anti_spoof: p[3] & vnet::FLAG_ANTI_SPOOF != 0,
        acl_out: groups(4),
        acl_in: groups(4 + 2 * vnet::STAGES),
    })
}
