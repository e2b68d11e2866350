//! The device's command queue: what a card's firmware does. Commands wait in a bounded queue, each is answered once, later.

use crate::inspect::{Inspected, Inspection};
use crate::program::View;
use crate::report::Ask;
use crate::shared::{Shared, Snapshot};
use crate::table_set::{Scope, TableSet, validate};
use crate::worker::owner;
use contract::schema::{self, vnet};
use contract::{
    Capabilities, Command, CommandId, Completion, Device, DeviceState, DumpedEntry, Entry, EntryHits,
    EntryId, Generation, InstallReason, Op, Outcome, Probed, Reply, ResetScope, Session, SubmitError,
    TableCapability, TableId, Target, Version,
};
use functions::eni::Armed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Commands carried out in one step.
const STEP: usize = 1024;

/// Both mailboxes of a worker and its host path thread.
pub type Mailboxes = (Sender<Ask>, Sender<Ask>);

/// Who sent a command, so that its completion finds back: a connection's number, 0 for a caller in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Asker(pub u64);

/// What is staged and not committed.
struct Transaction {
    device: TableSet,
    host: TableSet,
    deletes: BTreeSet<(Target, EntryId)>,
    misses: BTreeMap<(Target, Scope), contract::Miss>,
}

impl Default for Transaction {
    fn default() -> Self {
        Transaction {
            device: TableSet::new(Target::Device),
            host: TableSet::new(Target::Host),
            deletes: BTreeSet::new(),
            misses: BTreeMap::new(),
        }
    }
}

impl Transaction {
    fn inserts(&mut self, target: Target) -> &mut TableSet {
        match target {
            Target::Device => &mut self.device,
            Target::Host => &mut self.host,
        }
    }
}

/// An answer that needs the threads'.
enum Waiting {
    Hits { request: u64, from: EntryId, limit: u32 },
    Probe(Receiver<Inspected>),
}

/// The software device, as its controller sees it.
pub struct SoftDevice {
    shared: Arc<Shared>,
    mailboxes: Vec<Mailboxes>,
    capabilities: Capabilities,
    queue: VecDeque<(Asker, Session, CommandId, Command)>,
    waiting: Vec<(Asker, CommandId, Waiting)>,
    done: VecDeque<(Asker, Completion)>,
    session: Session,
    /// Who opened the session.
    holder: Asker,
    next_id: u64,
    version: Version,
    generation: Generation,
    device: TableSet,
    host: TableSet,
    armed: BTreeSet<u16>,
    staged: Transaction,
    /// Publications, the version that each brought, and the snapshot that each replaced: it is freed here, not by a worker.
    published: VecDeque<(u64, Version, Arc<Snapshot>)>,
    settled: Version,
    next_insert: u64,
    started: Option<u64>,
    now: u64,
}

impl SoftDevice {
    pub(crate) fn new(shared: Arc<Shared>, mailboxes: Vec<Mailboxes>) -> Self {
        let profile = &shared.config.profile;
        let tables = vnet::PROGRAM.tables.iter().map(|t| t.name).chain(["flow"]);
        let capabilities = Capabilities {
            program: vnet::PROGRAM.name.into(),
            profile: profile.name.clone(),
            tables: tables
                .map(|name| TableCapability { name: name.into(), limit: profile.limit(name).map(u64::from) })
                .collect(),
            queue: profile.queue,
            atomic_commit: true,
        };
        SoftDevice {
            mailboxes,
            capabilities,
            queue: VecDeque::new(),
            waiting: Vec::new(),
            done: VecDeque::new(),
            session: Session(0),
            holder: Asker(0),
            next_id: 0,
            version: Version(0),
            generation: Generation(1),
            device: TableSet::new(Target::Device),
            host: TableSet::new(Target::Host),
            armed: BTreeSet::new(),
            staged: Transaction::default(),
            published: VecDeque::new(),
            settled: Version(0),
            next_insert: 0,
            started: None,
            now: 0,
            shared,
        }
    }

    /// What all threads see.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Time since the first step, ns.
    pub(crate) fn uptime(&self) -> u64 {
        self.now - self.started.unwrap_or(self.now)
    }

    /// Who opened the session that may write.
    pub fn holder(&self) -> Asker {
        self.holder
    }

    /// Takes a command of a session, or answers at once that there is no room.
    pub fn take(&mut self, asker: Asker, session: Session, id: CommandId, command: Command) {
        if self.queue.len() + self.waiting.len() >= self.capabilities.queue as usize {
            self.complete(asker, id, Err(InstallReason::QueueFull));
        } else {
            self.queue.push_back((asker, session, id, command));
        }
    }

    /// The next completion and who it is for.
    pub fn completed(&mut self) -> Option<(Asker, Completion)> {
        self.done.pop_front()
    }

    /// Whether commands are under way.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.waiting.is_empty() || self.settled < self.version
    }

    /// Carries out what is due at `now` (ns, monotonic).
    pub fn poll(&mut self, now: u64) {
        self.now = now;
        self.started.get_or_insert(now);
        let epoch = self.shared.settled();
        while let Some((published, version, _)) = self.published.front()
            && *published <= epoch
        {
            self.settled = *version;
            self.published.pop_front();
        }
        for _ in 0..STEP {
            if self.is_insert_due() {
                break;
            }
            let Some((asker, session, id, command)) = self.queue.pop_front() else { break };
            self.execute(asker, session, id, command);
        }
        for (asker, id, waiting) in std::mem::take(&mut self.waiting) {
            match self.answer(&waiting) {
                Some(outcome) => self.complete(asker, id, outcome),
                None => self.waiting.push((asker, id, waiting)),
            }
        }
    }

    /// Whether the next command is an insert that the profile's rate holds back.
    fn is_insert_due(&self) -> bool {
        matches!(
            self.queue.front(),
            Some((_, _, _, Command::Stage(Op::Insert { target: Target::Device, .. })))
        ) && self.now < self.next_insert
    }

    fn complete(&mut self, asker: Asker, id: CommandId, outcome: Outcome) {
        self.done.push_back((asker, Completion { id, generation: self.generation, outcome }));
    }

    fn execute(&mut self, asker: Asker, session: Session, id: CommandId, command: Command) {
        let stale = Err(InstallReason::StaleGeneration { current: self.generation });
        let outcome = match command {
            Command::Hello { session } if session > self.session => {
                self.session = session;
                self.holder = asker;
                self.staged = Transaction::default();
                Ok(Reply::State(self.state()))
            }
            Command::Hello { .. } => stale,
            // Anybody who may connect may look; a new controller finds the next session's number so.
            Command::State => Ok(Reply::State(self.state())),
            _ if session != self.session => stale,
            Command::Stage(op) => self.stage(op),
            Command::Commit { version } if version > self.version => {
                self.commit(version);
                Ok(Reply::Done)
            }
            Command::Commit { .. } => stale,
            Command::Abort => {
                self.staged = Transaction::default();
                Ok(Reply::Done)
            }
            Command::Dump { target, from, limit } => Ok(self.dump(target, from, limit)),
            Command::Hits { from, limit } => {
                let request = self.shared.request_reports();
                self.waiting.push((asker, id, Waiting::Hits { request, from, limit }));
                return;
            }
            Command::Arm { enis } => {
                self.armed.extend(enis);
                self.publish(|_, _| {});
                Ok(Reply::Done)
            }
            Command::Reset(scope) => {
                self.reset(scope);
                Ok(Reply::Done)
            }
            Command::Probe { port, frame } => match self.inspect(port, frame, true) {
                Some(receiver) => {
                    self.waiting.push((asker, id, Waiting::Probe(receiver)));
                    return;
                }
                None => Err(InstallReason::DependencyMissing { what: format!("port {port}") }),
            },
        };
        self.complete(asker, id, outcome);
    }

    fn set(&self, target: Target) -> &TableSet {
        match target {
            Target::Device => &self.device,
            Target::Host => &self.host,
        }
    }

    fn stage(&mut self, op: Op) -> Outcome {
        match op {
            Op::Insert { target, entry } => {
                validate(&vnet::PROGRAM, &entry)?;
                self.check_free(target, &entry)?;
                if target == Target::Device {
                    self.check_room(entry.table)?;
                    let rate = u64::from(self.shared.config.profile.insert_rate);
                    if let Some(interval) = 1_000_000_000u64.checked_div(rate) {
                        self.next_insert = self.now + interval;
                    }
                }
                self.staged.inserts(target).insert(entry, self.version);
            }
            Op::Delete { target, table, id } => {
                if self.staged.inserts(target).remove(id).is_none() {
                    let there = self.set(target).get(id).is_some_and(|e| e.table == table);
                    if !there || !self.staged.deletes.insert((target, id)) {
                        return Err(InstallReason::EntryMissing { entry: id, table });
                    }
                }
            }
            Op::SetMiss { target, table, scope, miss } => {
                self.staged.misses.insert((target, (table, scope)), miss);
            }
        }
        Ok(Reply::Done)
    }

    /// Neither the id nor, where it decides alone, the key may be taken by an entry that stays.
    fn check_free(&mut self, target: Target, entry: &Entry) -> Result<(), InstallReason> {
        let staged = self.staged.inserts(target);
        let staged = staged.get(entry.id).map(|e| e.id).or_else(|| staged.same_key(entry));
        let stays = |id: &EntryId| !self.staged.deletes.contains(&(target, *id));
        let set = self.set(target);
        let taken = staged
            .or_else(|| set.get(entry.id).map(|e| e.id).filter(stays))
            .or_else(|| set.same_key(entry).filter(stays));
        match taken {
            Some(entry_there) => Err(InstallReason::EntryExists { entry: entry_there, table: entry.table }),
            None => Ok(()),
        }
    }

    /// Deleted entries hold their room until the commit, staged ones hold theirs already.
    fn check_room(&self, table: TableId) -> Result<(), InstallReason> {
        let name = vnet::PROGRAM.table(table).map_or("", |t| t.name);
        let Some(limit) = self.shared.config.profile.limit(name).map(u64::from) else { return Ok(()) };
        let used = self.device.used(table) + self.staged.device.used(table);
        if used < limit { Ok(()) } else { Err(InstallReason::TableFull { table: name.into(), used, limit }) }
    }

    fn commit(&mut self, version: Version) {
        let staged = std::mem::take(&mut self.staged);
        let mut changed: BTreeSet<(Target, Scope)> = BTreeSet::new();
        for (target, id) in staged.deletes {
            let set = if target == Target::Device { &mut self.device } else { &mut self.host };
            changed.extend(set.remove(id).map(|scope| (target, scope)));
        }
        for entry in staged.device.into_entries() {
            changed.insert((Target::Device, self.device.insert(entry, version)));
        }
        for entry in staged.host.into_entries() {
            changed.insert((Target::Host, self.host.insert(entry, version)));
        }
        for ((target, scope), miss) in staged.misses {
            let set = if target == Target::Device { &mut self.device } else { &mut self.host };
            set.set_miss(scope, miss);
            changed.insert((target, scope));
        }
        self.version = version;
        self.publish(|this, snapshot| {
            for (target, scope) in changed {
                match target {
                    Target::Device => this.device.rebuild(scope, &mut snapshot.device),
                    Target::Host => this.host.rebuild(scope, &mut snapshot.host),
                }
            }
        });
        let snapshot = self.shared.snapshot();
        self.armed.retain(|&eni| snapshot.host.enis.iter().any(|e| e.eni == eni));
    }

    /// Publishes the present snapshot with a change.
    fn publish(&mut self, change: impl FnOnce(&Self, &mut Snapshot)) {
        let before = self.shared.snapshot();
        let mut snapshot = Snapshot::clone(&before);
        change(self, &mut snapshot);
        snapshot.version = self.version;
        snapshot.generation = self.generation;
        snapshot.device.enis.armed = Armed::Only(self.armed.clone());
        let epoch = self.shared.publish(snapshot);
        self.published.push_back((epoch, self.version, before));
    }

    fn reset(&mut self, scope: ResetScope) {
        match scope {
            ResetScope::Warm => {
                self.generation = Generation(self.generation.0 + 1);
                self.device = TableSet::new(Target::Device);
                self.staged = Transaction::default();
                self.armed.clear();
                let unarmed = self.shared.config.unarmed();
                let flows = self.shared.new_flows();
                self.publish(|_, snapshot| {
                    snapshot.device = View::empty(Target::Device, unarmed);
                    snapshot.flows = flows;
                });
            }
        }
        self.complete(self.holder, CommandId(0), Ok(Reply::Reset(scope)));
    }

    fn dump(&self, target: Target, from: EntryId, limit: u32) -> Reply {
        let mut rest = self.set(target).from(from);
        let entries: Vec<DumpedEntry> = rest.by_ref().take(limit as usize).cloned().collect();
        Reply::Entries { entries, next: rest.next().map(|d| d.entry.id) }
    }

    fn answer(&self, waiting: &Waiting) -> Option<Outcome> {
        match waiting {
            Waiting::Hits { request, from, limit } => {
                self.shared.reported(*request).then(|| Ok(self.hits(*from, *limit)))
            }
            Waiting::Probe(receiver) => {
                let mut inspected = receiver.try_recv().ok()?;
                self.name_rules(&mut inspected);
                Some(Ok(Reply::Probed(Box::new(Probed { trace: inspected.trace, hits: inspected.hits }))))
            }
        }
    }

    fn hits(&self, from: EntryId, limit: u32) -> Reply {
        let mut sums: BTreeMap<EntryId, EntryHits> = BTreeMap::new();
        for (n, report) in self.shared.reports().iter().enumerate() {
            for (&entry, count) in &report.hits {
                let entry = EntryId(entry);
                let sum = sums.entry(entry).or_insert(EntryHits { entry, ..EntryHits::default() });
                if n < self.shared.config.workers {
                    sum.device += count.frames;
                } else {
                    sum.host += count.frames;
                }
            }
        }
        let mut rest = sums.range(from..).map(|(_, h)| *h);
        let hits = rest.by_ref().take(limit as usize).collect();
        Reply::Hits { hits, next: rest.next().map(|h| h.entry) }
    }

    /// Lets the worker that owns a packet's connection look at the packet.
    pub(crate) fn inspect(&self, port: u16, frame: Vec<u8>, probe: bool) -> Option<Receiver<Inspected>> {
        if usize::from(port) >= self.shared.config.ports.len() {
            return None;
        }
        let (sender, receiver) = channel();
        let inspection = Inspection::new(port, frame, probe, sender);
        let worker =
            inspection.parse(&self.shared.snapshot()).map_or(0, |(p, _)| owner(&p.key, &self.shared));
        self.mailboxes[worker].0.send(Ask::Inspect(Box::new(inspection))).ok()?;
        self.shared.boards[worker].wake.wake();
        Some(receiver)
    }

    /// Asks a thread (workers first, then host path threads) for connections.
    pub(crate) fn ask_flows(&self, thread: usize, from: u32) -> FlowPage {
        let (sender, receiver) = channel();
        let workers = self.mailboxes.len();
        let (mailbox, host) = &self.mailboxes[thread % workers];
        let mailbox = if thread < workers { mailbox } else { host };
        // A thread that is gone drops its end, and the receiver says so.
        let _ = mailbox.send(Ask::Flows(from, sender));
        self.shared.boards[thread].wake.wake();
        receiver
    }

    /// Writes into a trace which rule each entry belongs to.
    pub(crate) fn name_rules(&self, inspected: &mut Inspected) {
        for step in &mut inspected.trace.steps {
            let entry = step.entry.and_then(|id| self.host.get(id).or_else(|| self.device.get(id)));
            step.rule = entry.map(|e| e.rule);
        }
    }

    /// The device's state.
    pub fn state(&self) -> DeviceState {
        DeviceState {
            generation: self.generation,
            version: self.version,
            settled: self.settled,
            session: self.session,
            armed: self.armed.iter().copied().collect(),
            ports: self.shared.config.ports.iter().map(|p| p.name.clone()).collect(),
            tables: self
                .table_use()
                .into_iter()
                .map(|(n, used, limit)| (n.into(), used, limit.unwrap_or(0)))
                .collect(),
        }
    }

    /// Use of each table: name, used, limit.
    pub(crate) fn table_use(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        let profile = &self.shared.config.profile;
        let limit = |name: &str| profile.limit(name).map(u64::from);
        let mut tables: Vec<_> = vnet::PROGRAM
            .tables
            .iter()
            .map(|t: &schema::Table| (t.name, self.device.used(t.id), limit(t.name)))
            .collect();
        tables.push(("flow", self.shared.snapshot().flows.used(), limit("flow")));
        tables
    }
}

/// A page of connections, when it comes.
pub(crate) type FlowPage = Receiver<(Vec<contract::report::FlowReport>, Option<u32>)>;

impl Device for SoftDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, command: Command) -> Result<CommandId, SubmitError> {
        if self.queue.len() + self.waiting.len() >= self.capabilities.queue as usize {
            return Err(SubmitError::QueueFull);
        }
        self.next_id += 1;
        let session = match command {
            Command::Hello { session } => session,
            _ => self.session,
        };
        self.take(Asker::default(), session, CommandId(self.next_id), command);
        Ok(CommandId(self.next_id))
    }

    fn poll(&mut self) -> Result<Option<Completion>, SubmitError> {
        Ok(self.completed().map(|(_, completion)| completion))
    }
}
