//! A device for tests: bounded tables, commands carried out in order, completions in any order, and faults. It judges by its own
//! plain code, and at every commit checks that what it holds never answers otherwise than the full tables.

#![allow(dead_code)]

use contract::schema::{PUNT, vnet};
use contract::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A small generator of random numbers (xorshift64*).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn percent(&mut self, p: u32) -> bool {
        self.below(100) < p as usize
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// In percent of commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lose: u32,
    pub double: u32,
    pub refuse: u32,
    pub reset: u32,
    /// Of device inserts: taken, and not there after the commit.
    pub not_effective: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tables {
    pub entries: BTreeMap<EntryId, Entry>,
    pub deciding: BTreeSet<(TableId, u32)>,
}

/// What a lookup gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    Act(u32, Action),
    Miss,
    Punt,
}

impl Tables {
    pub fn lookup(&self, table: TableId, scope: u32, key: &[u128]) -> Found {
        let lpm = vnet::PROGRAM.table(table).unwrap().is_lpm();
        let mut best: Option<(&Entry, (u32, u32))> = None;
        for e in self.entries.values().filter(|e| e.table == table && e.scope == scope) {
            if !e.matches.iter().zip(key).all(|(m, v)| m.matches(*v)) {
                continue;
            }
            let rank = match (lpm, e.matches[0]) {
                (true, FieldMatch::Prefix { len, .. }) => (128 - u32::from(len), e.id.0),
                _ => (e.priority, e.id.0),
            };
            if best.is_none_or(|(_, r)| rank < r) {
                best = Some((e, rank));
            }
        }
        match best {
            Some((e, _)) if e.action.id == PUNT => Found::Punt,
            Some((e, _)) => Found::Act(e.rule.rule, e.action.clone()),
            None if self.deciding.contains(&(table, scope)) => Found::Miss,
            None => Found::Punt,
        }
    }
}

/// Judges a frame that came in on a port.
pub type Prober = fn(&FakeDevice, u16, &[u8]) -> Probed;

pub struct FakeDevice {
    pub capabilities: Capabilities,
    pub ports: Vec<String>,
    pub rng: Rng,
    pub faults: Faults,
    pub host: Tables,
    pub device: Tables,
    pub generation: u64,
    pub version: u64,
    pub session: u64,
    pub armed: BTreeSet<u16>,
    pub hits: BTreeMap<EntryId, EntryHits>,
    pub gone: bool,
    /// Commands wait; what was answered still comes.
    pub paused: bool,
    /// Commands that came, by name.
    pub log: Vec<String>,
    /// Host path and device tables after each commit.
    pub commits: Vec<(Tables, Tables)>,
    /// What was wrong at some commit.
    pub violations: Vec<String>,
    /// Answers probes.
    pub prober: Option<Prober>,
    pub queue: VecDeque<(CommandId, u64, Command)>,
    staged: Vec<Op>,
    open_session: u64,
    last: u64,
    out: Vec<Completion>,
}

impl FakeDevice {
    pub fn new(seed: u64, limits: &[(&str, u64)], ports: &[&str]) -> FakeDevice {
        let tables = vnet::PROGRAM.tables.iter().map(|t| TableCapability {
            name: t.name.to_owned(),
            limit: limits.iter().find(|(n, _)| *n == t.name).map(|(_, l)| *l),
        });
        FakeDevice {
            capabilities: Capabilities {
                program: "vnet".to_owned(),
                profile: "test".to_owned(),
                tables: tables.collect(),
                queue: 8,
                atomic_commit: true,
            },
            ports: ports.iter().map(|p| (*p).to_owned()).collect(),
            rng: Rng::new(seed),
            faults: Faults::default(),
            host: Tables::default(),
            device: Tables::default(),
            generation: 1,
            version: 0,
            session: 0,
            armed: BTreeSet::new(),
            hits: BTreeMap::new(),
            gone: false,
            paused: false,
            log: Vec::new(),
            commits: Vec::new(),
            violations: Vec::new(),
            prober: None,
            queue: VecDeque::new(),
            staged: Vec::new(),
            open_session: 0,
            last: 0,
            out: Vec::new(),
        }
    }

    pub fn count(&self, name: &str) -> usize {
        self.log.iter().filter(|l| l.starts_with(name)).count()
    }

    pub fn used(&self, table: TableId) -> usize {
        self.device.entries.values().filter(|e| e.table == table).count()
    }

    /// The device's tables are lost, the host path's stay.
    pub fn warm_reset(&mut self) {
        self.generation += 1;
        self.device = Tables::default();
        self.armed.clear();
        self.staged.clear();
        self.notify(CommandId(0), Ok(Reply::Reset(ResetScope::Warm)));
    }

    fn notify(&mut self, id: CommandId, outcome: Outcome) {
        let completion = Completion { id, generation: Generation(self.generation), outcome };
        if id.0 != 0 && self.rng.percent(self.faults.lose) {
            return;
        }
        if self.rng.percent(self.faults.double) {
            self.out.push(completion.clone());
        }
        self.out.push(completion);
    }

    fn state(&self) -> DeviceState {
        DeviceState {
            generation: Generation(self.generation),
            version: Version(self.version),
            settled: Version(self.version),
            session: Session(self.session),
            armed: self.armed.iter().copied().collect(),
            ports: self.ports.clone(),
            tables: Vec::new(),
        }
    }

    fn limit(&self, table: TableId) -> Option<u64> {
        let name = vnet::PROGRAM.table(table)?.name;
        self.capabilities.tables.iter().find(|t| t.name == name)?.limit
    }

    /// What is staged: inserted, and deleted.
    fn staging(&self, target: Target) -> (BTreeMap<EntryId, &Entry>, BTreeSet<EntryId>) {
        let (mut inserted, mut deleted) = (BTreeMap::new(), BTreeSet::new());
        for op in &self.staged {
            match op {
                Op::Insert { target: t, entry } if *t == target => {
                    inserted.insert(entry.id, entry);
                }
                Op::Delete { target: t, id, .. } if *t == target && inserted.remove(id).is_none() => {
                    deleted.insert(*id);
                }
                _ => {}
            }
        }
        (inserted, deleted)
    }

    fn stage(&mut self, op: Op) -> Outcome {
        match &op {
            Op::Insert { target, entry } => {
                let committed = match target {
                    Target::Device => &self.device.entries,
                    Target::Host => &self.host.entries,
                };
                let (inserted, deleted) = self.staging(*target);
                let live = committed.values().filter(|e| !deleted.contains(&e.id));
                let same_key = |e: &&Entry| {
                    e.id == entry.id
                        || (e.table == entry.table
                            && e.scope == entry.scope
                            && e.priority == entry.priority
                            && e.matches == entry.matches)
                };
                if let Some(e) = live.chain(inserted.values().copied()).find(same_key) {
                    // Entries of one ACL key and priority can't both be: the contract's `entry_exists`.
                    return Err(InstallReason::EntryExists { entry: e.id, table: e.table });
                }
                if *target == Target::Device {
                    // The room of committed entries is free only after the commit.
                    let used = committed.values().filter(|e| e.table == entry.table).count()
                        + inserted.values().filter(|e| e.table == entry.table).count();
                    if let Some(limit) = self.limit(entry.table)
                        && used as u64 >= limit
                    {
                        let table = vnet::PROGRAM.table(entry.table).unwrap().name.to_owned();
                        return Err(InstallReason::TableFull { table, used: used as u64, limit });
                    }
                    if self.rng.percent(self.faults.refuse) {
                        return Err(InstallReason::FirmwareRejected);
                    }
                }
            }
            Op::Delete { target, table, id } => {
                let committed = match target {
                    Target::Device => &self.device.entries,
                    Target::Host => &self.host.entries,
                };
                let (inserted, deleted) = self.staging(*target);
                let there =
                    inserted.contains_key(id) || (committed.contains_key(id) && !deleted.contains(id));
                if !there {
                    return Err(InstallReason::EntryMissing { entry: *id, table: *table });
                }
            }
            Op::SetMiss { .. } => {}
        }
        self.staged.push(op);
        Ok(Reply::Done)
    }

    fn commit(&mut self, version: u64) -> Outcome {
        if version <= self.version {
            return Err(InstallReason::StaleGeneration { current: Generation(self.generation) });
        }
        for op in std::mem::take(&mut self.staged) {
            let target = match op {
                Op::Insert { target, .. } | Op::Delete { target, .. } | Op::SetMiss { target, .. } => target,
            };
            let not_effective = self.rng.percent(self.faults.not_effective);
            let tables = match target {
                Target::Device => &mut self.device,
                Target::Host => &mut self.host,
            };
            match op {
                Op::Insert { target: Target::Device, .. } if not_effective => {}
                Op::Insert { entry, .. } => {
                    tables.entries.insert(entry.id, entry);
                }
                Op::Delete { id, .. } => {
                    tables.entries.remove(&id);
                }
                Op::SetMiss { table, scope, miss: Miss::Decide, .. } => {
                    tables.deciding.insert((table, scope));
                }
                Op::SetMiss { table, scope, miss: Miss::Punt, .. } => {
                    tables.deciding.remove(&(table, scope));
                }
            }
        }
        self.version = version;
        self.commits.push((self.host.clone(), self.device.clone()));
        if self.faults.not_effective == 0 {
            self.check();
        }
        Ok(Reply::Done)
    }

    /// For many keys of each scope: the device answers as the host path does, or punts.
    pub fn check(&mut self) {
        let host = self.host.clone();
        let mut scopes: BTreeSet<(TableId, u32)> = host.deciding.clone();
        scopes.extend(self.device.deciding.iter().copied());
        scopes.extend(self.device.entries.values().map(|e| (e.table, e.scope)));
        for (table, scope) in scopes {
            let all: Vec<Entry> = host
                .entries
                .values()
                .chain(self.device.entries.values())
                .filter(|e| e.table == table && e.scope == scope)
                .cloned()
                .collect();
            let mut keys: Vec<Vec<u128>> = Vec::new();
            for a in &all {
                for b in all.iter().filter(|b| a.overlaps(b)) {
                    keys.push(a.matches.iter().zip(&b.matches).map(|(a, b)| common(*a, *b)).collect());
                }
            }
            let fields = vnet::PROGRAM.table(table).unwrap().key.len();
            for _ in 0..100 {
                let key = (0..fields).map(|f| {
                    let m = if all.is_empty() { FieldMatch::Any } else { self.rng.pick(&all).matches[f] };
                    let (low, high) = bounds(m);
                    match self.rng.below(4) {
                        0 => low,
                        1 => high,
                        2 => low.wrapping_sub(1),
                        _ => high.wrapping_add(1),
                    }
                });
                keys.push(key.collect());
            }
            for key in keys {
                let full = host.lookup(table, scope, &key);
                let here = self.device.lookup(table, scope, &key);
                if here != full && here != Found::Punt {
                    self.violations.push(format!(
                        "version {}: table {table} scope {scope} key {key:x?}: device {here:?}, full {full:?}",
                        self.version
                    ));
                }
            }
        }
    }

    fn execute(&mut self, id: CommandId, session: u64, command: Command) {
        let name = format!("{command:?}");
        self.log.push(name.chars().take(60).collect());
        let current = Generation(self.generation);
        let fenced = session != self.session && !matches!(command, Command::Hello { .. } | Command::State);
        if fenced {
            return self.notify(id, Err(InstallReason::StaleGeneration { current }));
        }
        let outcome = match command {
            Command::Hello { session } if session.0 > self.session => {
                self.session = session.0;
                self.staged.clear();
                Ok(Reply::State(self.state()))
            }
            Command::Hello { .. } => Err(InstallReason::StaleGeneration { current }),
            Command::Stage(op) => self.stage(op),
            Command::Commit { version } => self.commit(version.0),
            Command::Abort => {
                self.staged.clear();
                Ok(Reply::Done)
            }
            Command::Dump { target, from, limit } => {
                let tables = match target {
                    Target::Device => &self.device,
                    Target::Host => &self.host,
                };
                let mut page: Vec<DumpedEntry> = tables
                    .entries
                    .range(from..)
                    .take(limit as usize + 1)
                    .map(|(_, e)| DumpedEntry { entry: e.clone(), since: Version(self.version) })
                    .collect();
                let next = (page.len() > limit as usize).then(|| page.pop().unwrap().entry.id);
                Ok(Reply::Entries { entries: page, next })
            }
            Command::Hits { .. } => {
                Ok(Reply::Hits { hits: self.hits.values().copied().collect(), next: None })
            }
            Command::Arm { enis } => {
                self.armed.extend(enis);
                Ok(Reply::Done)
            }
            Command::Reset(_) => {
                self.warm_reset();
                Ok(Reply::Done)
            }
            Command::Probe { port, frame } => {
                let prober = self.prober.expect("no probe expected");
                Ok(Reply::Probed(Box::new(prober(self, port, &frame))))
            }
            Command::State => Ok(Reply::State(self.state())),
        };
        self.notify(id, outcome);
    }
}

fn bounds(m: FieldMatch) -> (u128, u128) {
    match m {
        FieldMatch::Any => (0, 1),
        FieldMatch::Exact(v) => (v, v),
        FieldMatch::Prefix { value, len } => {
            (value, value | if len == 0 { u128::MAX } else { u128::MAX.checked_shr(len.into()).unwrap_or(0) })
        }
        FieldMatch::Range { low, high } => (low.into(), high.into()),
    }
}

/// A value that both match.
fn common(a: FieldMatch, b: FieldMatch) -> u128 {
    let (low_a, _) = bounds(a);
    let (low_b, _) = bounds(b);
    match (a, b) {
        (FieldMatch::Any, _) => low_b,
        (_, FieldMatch::Any) => low_a,
        _ => low_a.max(low_b),
    }
}

impl Device for FakeDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, command: Command) -> Result<CommandId, SubmitError> {
        if self.gone {
            return Err(SubmitError::Gone("test".to_owned()));
        }
        if self.queue.len() >= self.capabilities.queue as usize {
            return Err(SubmitError::QueueFull);
        }
        if let Command::Hello { session } = &command {
            self.open_session = session.0;
        }
        self.last += 1;
        self.queue.push_back((CommandId(self.last), self.open_session, command));
        Ok(CommandId(self.last))
    }

    fn poll(&mut self) -> Result<Option<Completion>, SubmitError> {
        if self.gone {
            return Err(SubmitError::Gone("test".to_owned()));
        }
        while !self.paused
            && let Some((id, session, command)) = self.queue.pop_front()
        {
            if self.rng.percent(self.faults.reset) && self.rng.percent(10) {
                self.warm_reset();
            }
            self.execute(id, session, command);
        }
        if self.out.is_empty() {
            return Ok(None);
        }
        let at = self.rng.below(self.out.len());
        Ok(Some(self.out.swap_remove(at)))
    }
}
