//! A device on a test stand: memory ports, a clock that the test moves, and threads that run when the test says so.

use contract::report::{Answer, Query, TraceReport};
use device::{Config, HostPath, SoftDevice, Worker};
use packet::{ConsumeReason, CreateReason, DropReason, Ledger, PuntReason};
use ports::{MemoryHandle, MemoryPort, Packet, Port};

use crate::random::Random;

/// Packets that a port's queue holds.
const QUEUE: usize = 4096;
/// Rounds in which a device must come to rest.
const ROUNDS: usize = 4000;

/// A device whose threads are stepped.
pub struct Stand {
    /// Its command queue.
    pub device: SoftDevice,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// Its host path threads.
    pub hosts: Vec<HostPath>,
    /// The other side of each port's queues: by port, then by worker.
    pub ports: Vec<Vec<MemoryHandle>>,
    /// The time, ns.
    pub now: u64,
}

/// A packet that left, and the port by which it did.
pub type Left = (usize, Packet);

impl Stand {
    /// A device of this configuration.
    ///
    /// # Panics
    /// If there is no memory for it.
    pub fn new(config: Config) -> Stand {
        let mut ports = Vec::new();
        let mut queues: Vec<Vec<Box<dyn Port>>> = Vec::new();
        for _ in &config.ports {
            let (near, far): (Vec<_>, Vec<_>) = (0..config.workers).map(|_| MemoryPort::pair(QUEUE)).unzip();
            queues.push(near.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect());
            ports.push(far);
        }
        let (device, workers, hosts) = device::build(config, queues).expect("memory for a device");
        Stand { device, workers, hosts, ports, now: 1_000_000_000 }
    }

    /// The sum of all accounts.
    pub fn ledger(&self) -> Ledger {
        let mut sum = Ledger::new();
        self.workers.iter().for_each(|w| sum.merge(&w.report().ledger));
        self.hosts.iter().for_each(|h| sum.merge(&h.report().ledger));
        sum
    }

    /// Threads that handle packets.
    pub fn threads(&self) -> usize {
        self.workers.len() + self.hosts.len()
    }

    /// Lets one of the threads that handle packets do a step; whether it had anything to do.
    pub fn step(&mut self, thread: usize) -> bool {
        match self.workers.len() {
            workers if thread < workers => self.workers[thread].poll(self.now),
            workers => self.hosts[thread - workers].poll(self.now),
        }
    }

    /// Puts a packet into the queue of one worker.
    ///
    /// # Panics
    /// If the queue is full: the test has not let the device run.
    pub fn inject(&mut self, port: usize, queue: usize, packet: Packet) {
        let queues = &self.ports[port];
        assert!(queues[queue % queues.len()].push(packet), "the queue of port {port} is full");
    }

    /// What has left since the last time.
    pub fn take(&mut self) -> Vec<Left> {
        let handles = self.ports.iter().enumerate().flat_map(|(n, q)| q.iter().map(move |h| (n, h)));
        handles.flat_map(|(n, h)| std::iter::from_fn(move || h.pop().map(|p| (n, p)))).collect()
    }

    /// Runs all threads, in an order of chance, until none has anything to do.
    ///
    /// # Errors
    /// If that never happens.
    pub fn rest(&mut self, random: &mut Random) -> Result<(), String> {
        let mut idle = 0;
        for _ in 0..ROUNDS {
            let mut busy = false;
            let first = random.below(self.threads() as u64) as usize;
            for n in 0..self.threads() {
                self.now += 1 + random.below(20_000);
                busy |= self.step((first + n) % self.threads());
            }
            self.device.poll(self.now);
            idle = if busy { 0 } else { idle + 1 };
            if idle >= 2 {
                return self.law();
            }
        }
        Err(format!("the device does not come to rest:\n{}", words(&self.ledger())))
    }

    /// The law, for a device at rest: every thread's account balances, and nothing is between them.
    ///
    /// # Errors
    /// What does not balance.
    pub fn law(&self) -> Result<(), String> {
        let reports = self.workers.iter().map(Worker::report).chain(self.hosts.iter().map(HostPath::report));
        for report in reports {
            let (unaccounted, held) = (report.ledger.unaccounted(), report.ledger.held);
            if unaccounted != 0 || held != 0 {
                let name = report.name;
                return Err(format!("{name}: {unaccounted} unaccounted, {held} held at rest"));
            }
        }
        let all = self.ledger();
        let punted: u64 = all.left.host_path.iter().map(|c| c.frames).sum();
        let between = [
            ("punt queues", punted, all.entered.punted.frames),
            ("ways back from the host path", all.left.returned.frames, all.entered.host_path.frames),
            ("rings between workers", all.left.worker.frames, all.entered.worker.frames),
        ];
        for (place, left, entered) in between {
            if left != entered {
                return Err(format!("{place}: {left} frames went in, {entered} came out"));
            }
        }
        Ok(())
    }

    /// The device's own account of a packet's way, without sending it.
    pub fn trace(&mut self, port: &str, frame: &[u8]) -> Option<TraceReport> {
        let mut pending = self.device.query(Query::Trace { port: port.into(), frame: frame.to_vec() });
        for _ in 0..16 {
            (0..self.threads()).for_each(|n| {
                self.step(n);
            });
            if let Some(Answer::Trace(trace)) = self.device.answer_to(&mut pending) {
                return Some(trace);
            }
        }
        None
    }
}

/// An account in words: all that is not zero.
pub fn words(ledger: &Ledger) -> String {
    let mut lines = Vec::new();
    let mut add = |what: String, frames: u64| {
        if frames > 0 {
            lines.push(format!("  {what}: {frames}"));
        }
    };
    let (entered, left) = (&ledger.entered, &ledger.left);
    add("entered port".into(), entered.port.frames);
    for (reason, count) in CreateReason::ALL.iter().zip(&entered.created) {
        add(format!("created {reason}"), count.frames);
    }
    add("left port".into(), left.port.frames);
    for (reason, count) in PuntReason::ALL.iter().zip(&left.host_path) {
        add(format!("punted {reason}"), count.frames);
    }
    for (reason, count) in DropReason::ALL.iter().zip(&left.drops) {
        add(format!("dropped {reason}"), count.frames);
    }
    for (reason, count) in ConsumeReason::ALL.iter().zip(&left.consumed) {
        add(format!("consumed {reason}"), count.frames);
    }
    lines.join("\n")
}

/// Drops between two accounts, by reason.
pub fn drops(before: &Ledger, after: &Ledger) -> Vec<(DropReason, u64)> {
    let count = |reason: &DropReason| {
        after.left.drops[reason.index()].frames - before.left.drops[reason.index()].frames
    };
    DropReason::ALL.iter().map(|r| (*r, count(r))).filter(|(_, n)| *n > 0).collect()
}

/// Punts between two accounts, by reason.
pub fn punts(before: &Ledger, after: &Ledger) -> Vec<(PuntReason, u64)> {
    let count = |reason: &PuntReason| {
        after.left.host_path[reason.index()].frames - before.left.host_path[reason.index()].frames
    };
    PuntReason::ALL.iter().map(|r| (*r, count(r))).filter(|(_, n)| *n > 0).collect()
}
