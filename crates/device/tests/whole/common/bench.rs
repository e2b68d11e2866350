//! A device whose threads a test steps, and what has become of a frame.

use super::Policy;
use contract::report::{Answer, Query, TraceOutcome, TraceReport};
use contract::{Command, Entry, Miss, Op, Outcome as Done, ResetScope, Session, TableId, Target, Version};
use device::{Config, HostPath, SoftDevice, ThreadReport, Worker};
use packet::{Checksum, ConsumeReason, Count, CreateReason, DropReason, GsoType, Ledger, Meta, PuntReason};
use ports::{MemoryHandle, MemoryPort, Packet, Port};
use std::collections::BTreeSet;

/// What a device is built from, and the room of its ports' queues.
pub struct Setup {
    pub config: Config,
    pub queue: usize,
}

/// A device on a bench.
pub struct Bench {
    pub device: SoftDevice,
    pub workers: Vec<Worker>,
    pub hosts: Vec<HostPath>,
    /// The other side of each port's queues: by port, then by worker.
    pub ports: Vec<Vec<MemoryHandle>>,
    /// ns.
    pub now: u64,
    version: u64,
}

/// The one end of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It left by this port.
    Sent(usize),
    /// Dropped by this thread.
    Dropped(DropReason, String),
    /// Consumed by this thread.
    Consumed(ConsumeReason, String),
    /// Consumed, and the answer left by this port.
    Answered(CreateReason, usize, String),
}

/// What has become of a frame.
#[derive(Debug)]
pub struct Outcome {
    pub fate: Fate,
    /// What left.
    pub left: Option<Packet>,
    /// Why it went to the host path, if it did.
    pub punted: Vec<PuntReason>,
}

/// A TCP super-frame with segments of this size.
pub fn super_frame(bytes: Vec<u8>, gso_size: u16) -> Packet {
    let v6 = bytes.get(12) == Some(&0x86);
    let gso = if v6 { GsoType::TcpV6 } else { GsoType::TcpV4 };
    Packet { bytes, meta: Meta { gso, gso_size, ..Meta::default() } }
}

/// A frame whose transport checksum is still to be completed.
pub fn partial(bytes: Vec<u8>, start: u16, offset: u16) -> Packet {
    Packet { bytes, meta: Meta { csum: Checksum::Partial { start, offset }, ..Meta::default() } }
}

fn non_zero<R: Copy>(all: &'static [R], before: &[Count], after: &[Count]) -> Vec<(R, u64)> {
    let counts = all.iter().zip(before.iter().zip(after));
    counts.map(|(r, (b, a))| (*r, a.frames - b.frames)).filter(|(_, n)| *n > 0).collect()
}

impl Bench {
    /// A device with memory ports, and no entries.
    pub fn new(config: Config) -> Bench {
        Bench::with(Setup { config, queue: 1024 })
    }

    pub fn with(setup: Setup) -> Bench {
        let mut handles = Vec::new();
        let mut queues = Vec::new();
        for _ in &setup.config.ports {
            let pairs = (0..setup.config.workers).map(|_| MemoryPort::pair(setup.queue));
            let (near, far): (Vec<_>, Vec<_>) = pairs.unzip();
            queues.push(near.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect());
            handles.push(far);
        }
        Bench::on(setup.config, queues, handles)
    }

    /// A device on ports of the test's own.
    pub fn on(config: Config, queues: Vec<Vec<Box<dyn Port>>>, ports: Vec<Vec<MemoryHandle>>) -> Bench {
        let (device, workers, hosts) = device::build(config, queues).expect("memory for a device");
        let now = 1_000_000_000;
        let mut bench = Bench { device, workers, hosts, ports, now, version: 0 };
        bench.command(Command::Hello { session: Session(1) }).expect("a first session");
        bench
    }

    /// A device with the whole policy in both its table sets, armed.
    pub fn loaded(config: Config, policy: &Policy, enis: &[u16]) -> Bench {
        let mut bench = Bench::new(config);
        bench.load(policy);
        bench.arm(enis);
        bench
    }

    /// Puts a policy into the device and the host path as a whole.
    pub fn load(&mut self, policy: &Policy) {
        self.install(Target::Host, &policy.entries, true);
        self.install(Target::Device, &policy.entries, true);
        self.commit();
    }

    /// Stages entries; `complete`: the scopes that they are in hold all there is.
    pub fn install(&mut self, target: Target, entries: &[Entry], complete: bool) {
        for entry in entries {
            self.stage(Op::Insert { target, entry: entry.clone() });
        }
        let scopes: BTreeSet<(TableId, u32)> = entries.iter().map(|e| (e.table, e.scope)).collect();
        for (table, scope) in scopes.into_iter().filter(|_| complete) {
            self.stage(Op::SetMiss { target, table, scope, miss: Miss::Decide });
        }
    }

    pub fn stage(&mut self, op: Op) {
        self.command(Command::Stage(op.clone())).unwrap_or_else(|reason| panic!("{op:?}: {reason}"));
    }

    /// Commits while packets are under way.
    pub fn commit_now(&mut self) {
        self.version += 1;
        self.command(Command::Commit { version: Version(self.version) }).expect("a commit");
    }

    /// Commits, and waits until every thread judges by it.
    pub fn commit(&mut self) {
        self.commit_now();
        self.rest();
        self.rest();
        assert_eq!(self.device.state().settled, Version(self.version));
    }

    pub fn arm(&mut self, enis: &[u16]) {
        self.command(Command::Arm { enis: enis.to_vec() }).expect("armed");
        self.rest();
    }

    pub fn warm_reset(&mut self) {
        self.command(Command::Reset(ResetScope::Warm)).expect("a reset");
        self.rest();
    }

    /// Carries out a command.
    pub fn command(&mut self, command: Command) -> Done {
        let id = contract::Device::submit(&mut self.device, command).expect("room in the queue");
        for _ in 0..8 {
            self.device.poll(self.now);
            while let Ok(Some(completion)) = contract::Device::poll(&mut self.device) {
                if completion.id == id {
                    return completion.outcome;
                }
            }
            self.round();
        }
        panic!("the device does not answer");
    }

    /// Lets one worker do a step, and checks its account.
    pub fn poll_worker(&mut self, worker: usize) -> bool {
        let busy = self.workers[worker].poll(self.now);
        balanced(&self.workers[worker].report());
        busy
    }

    /// Lets one host path thread do a step, and checks its account.
    pub fn poll_host(&mut self, host: usize) -> bool {
        let busy = self.hosts[host].poll(self.now);
        balanced(&self.hosts[host].report());
        busy
    }

    /// One step of every thread.
    pub fn round(&mut self) -> bool {
        self.now += 1000;
        let mut busy = false;
        for n in 0..self.workers.len() {
            busy |= self.poll_worker(n);
            busy |= self.poll_host(n);
        }
        self.device.poll(self.now);
        busy
    }

    /// Runs until nobody has anything to do, and checks that nothing is held anywhere.
    pub fn rest(&mut self) {
        for _ in 0..1000 {
            if !self.round() && !self.round() {
                return self.nothing_queued();
            }
        }
        panic!("the device does not come to rest");
    }

    fn nothing_queued(&self) {
        let all = self.ledger();
        let sum = |counts: &[Count]| counts.iter().map(|c| c.frames).sum::<u64>();
        assert_eq!(all.held, 0, "frames wait at a host path");
        assert_eq!(sum(&all.left.host_path), all.entered.punted.frames, "frames wait for the host path");
        assert_eq!(all.left.returned.frames, all.entered.host_path.frames, "frames wait on their way back");
        assert_eq!(all.left.worker.frames, all.entered.worker.frames, "frames wait between workers");
        for (port, queue) in self.ports.iter().enumerate() {
            assert!(queue.iter().all(|q| q.waiting().0 == 0), "frames wait at port {port}");
        }
    }

    /// Lets time pass, in steps that let sweeps see every record.
    pub fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1_000_000_000;
            self.round();
        }
        self.rest();
    }

    pub fn reports(&self) -> Vec<ThreadReport> {
        let workers = self.workers.iter().map(Worker::report);
        workers.chain(self.hosts.iter().map(HostPath::report)).collect()
    }

    /// All accounts together.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::new();
        self.reports().iter().for_each(|r| sum.merge(&r.ledger));
        sum
    }

    /// Connections in the device, on their way there, and at the host path.
    pub fn tiers(&self) -> (u64, u64, u64) {
        let reports = self.reports();
        let sum = |f: fn(&ThreadReport) -> u64| reports.iter().map(f).sum();
        (sum(|r| r.device), sum(|r| r.pending), sum(|r| r.host))
    }

    /// Frames that hit in the device's flow table.
    pub fn flow_hits(&self) -> u64 {
        self.reports().iter().map(|r| r.flow_hits).sum()
    }

    /// Puts a frame where a port will receive it.
    pub fn push(&self, port: usize, packet: impl Into<Packet>) {
        assert!(self.ports[port][0].push(packet.into()), "room in the queue");
    }

    /// All that has left by a port since the last time.
    pub fn take(&self, port: usize) -> Vec<Packet> {
        self.ports[port].iter().flat_map(|queue| std::iter::from_fn(|| queue.pop())).collect()
    }

    /// Drops so far.
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.ledger().left.drops[reason.index()].frames
    }

    /// What the device says would become of a frame.
    fn trace(&mut self, port: usize, frame: &[u8]) -> TraceReport {
        let port = self.device.state().ports[port].clone();
        let mut pending = self.device.query(Query::Trace { port, frame: frame.to_vec() });
        for _ in 0..8 {
            self.round();
            if let Some(Answer::Trace(trace)) = self.device.answer_to(&mut pending) {
                return trace;
            }
        }
        panic!("the device does not answer");
    }

    /// Sends one frame in, after the device has said what would become of it: the same.
    pub fn send_traced(&mut self, port: usize, frame: &[u8]) -> Outcome {
        let before = self.ledger();
        let trace = self.trace(port, frame);
        assert_eq!(self.ledger(), before, "a trace is not traffic");
        let outcome = self.send(port, frame);
        let expected = match &outcome.fate {
            Fate::Sent(port) => TraceOutcome::Forward { port: self.device.state().ports[*port].clone() },
            Fate::Dropped(reason, _) => TraceOutcome::Drop { reason: reason.to_string() },
            Fate::Consumed(reason, _) => TraceOutcome::Consume { reason: reason.to_string() },
            Fate::Answered(CreateReason::ArpReply, ..) => {
                TraceOutcome::Consume { reason: "arp_answered".into() }
            }
            Fate::Answered(..) => TraceOutcome::Consume { reason: "nd_answered".into() },
        };
        assert_eq!(trace.outcome, expected, "what the trace said, what happened: {:#?}", trace.steps);
        outcome
    }

    /// Sends one frame in, and says what has become of it: exactly one thing.
    pub fn send(&mut self, port: usize, packet: impl Into<Packet>) -> Outcome {
        let before = self.reports();
        self.push(port, packet);
        self.rest();
        let after = self.reports();
        let left: Vec<(usize, Packet)> = (0..self.ports.len())
            .flat_map(|p| self.take(p).into_iter().map(move |packet| (p, packet)))
            .collect();
        let (mut fates, mut created, mut punted, mut sent) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for (before, after) in before.iter().zip(&after) {
            let name = || after.name.clone();
            let (b, a) = (&before.ledger.left, &after.ledger.left);
            sent += a.port.frames - b.port.frames;
            let drops = non_zero(DropReason::ALL, &b.drops, &a.drops);
            fates.extend(drops.into_iter().map(|(r, n)| (Fate::Dropped(r, name()), n)));
            let consumed = non_zero(ConsumeReason::ALL, &b.consumed, &a.consumed);
            fates.extend(consumed.into_iter().map(|(r, n)| (Fate::Consumed(r, name()), n)));
            punted.extend(non_zero(PuntReason::ALL, &b.host_path, &a.host_path).into_iter().map(|(r, _)| r));
            let (b, a) = (&before.ledger.entered.created, &after.ledger.entered.created);
            created.extend(non_zero(CreateReason::ALL, b, a).into_iter().map(|(r, n)| (r, name(), n)));
        }
        assert_eq!(left.len() as u64, sent, "what left is what was counted: {fates:?}");
        let fate = match (&fates[..], &created[..], &left[..]) {
            ([], [], [(port, _)]) => Fate::Sent(*port),
            ([(fate, 1)], [], []) => fate.clone(),
            ([(Fate::Consumed(_, at), 1)], [(reason, by, 1)], [(port, _)]) if at == by => {
                Fate::Answered(*reason, *port, at.clone())
            }
            _ => panic!("one frame in, and counted: {fates:?}, created {created:?}, sent {sent}"),
        };
        Outcome { fate, left: left.into_iter().next().map(|(_, packet)| packet), punted }
    }
}

/// The law, after each step.
fn balanced(report: &ThreadReport) {
    let unaccounted = report.ledger.unaccounted();
    assert_eq!(unaccounted, 0, "{}: {:?}", report.name, report.ledger);
}
