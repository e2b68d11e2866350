//! What the threads of a device share: the published snapshot, and each thread's board.

use crate::command_queue::SoftDevice;
use crate::flow_capacity::FlowCapacity;
use crate::host_path::HostPath;
use crate::program::View;
use crate::report::ThreadReport;
use crate::wake::Wake;
use crate::worker::Worker;
use arc_swap::{ArcSwap, ArcSwapOption};
use contract::{Generation, Target, Version};
use model::{MissPolicy, Profile, ResetPolicy};
use packet::{DropReason, Pool, PuntReason};
use pipeline::judge::Step;
use ports::Port;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

/// A port as the device knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDescription {
    /// Its name.
    pub name: String,
    /// `tap`, `af_packet`, `memory`.
    pub kind: String,
    /// The interface behind it.
    pub interface: String,
    /// Largest IP packet, bytes.
    pub mtu: u32,
}

/// What a device is built from.
#[derive(Clone, Debug)]
pub struct Config {
    /// What it can do.
    pub profile: Profile,
    /// What happens to packets that it cannot decide.
    pub miss_policy: MissPolicy,
    /// What happens to packets of ENIs that are not armed.
    pub reset_policy: ResetPolicy,
    /// Ports in the order of their indices.
    pub ports: Vec<PortDescription>,
    /// Workers, each with a host path thread beside it.
    pub workers: usize,
    /// Keys the hashes.
    pub seed: u64,
    /// Buffers of 2 KiB per worker.
    pub small_buffers: usize,
    /// Buffers of 64 KiB per worker.
    pub large_buffers: usize,
    /// Places in each ring between threads; a power of two.
    pub ring: usize,
    /// Records of connections per thread; more are refused by name.
    pub max_connections: usize,
    /// Frames of one ENI that may wait for the host path.
    pub host_queue: usize,
}

impl Config {
    /// A device of this profile with these ports, one worker, and the usual sizes.
    pub fn new(profile: Profile, ports: Vec<PortDescription>) -> Self {
        Config {
            profile,
            miss_policy: MissPolicy::Fallback,
            reset_policy: ResetPolicy::Host,
            ports,
            workers: 1,
            seed: 0,
            small_buffers: 4096,
            large_buffers: 1024,
            ring: 1024,
            max_connections: 4 << 20,
            host_queue: 512,
        }
    }
}

impl Config {
    /// What packets of ENIs that are not armed get.
    pub fn unarmed(&self) -> Step {
        match self.reset_policy {
            ResetPolicy::Host => Step::Punt(PuntReason::NotArmed),
            ResetPolicy::Deny => Step::Drop(DropReason::NotArmed),
        }
    }
}

/// Everything that judges a packet, at one version.
#[derive(Clone)]
pub struct Snapshot {
    /// The last commit.
    pub version: Version,
    /// The life of the device's tables.
    pub generation: Generation,
    /// The device's bounded tables.
    pub device: View,
    /// The host path's full tables.
    pub host: View,
    /// The flow table's room.
    pub flows: Arc<FlowCapacity>,
}

/// One thread's board: what it tells the others.
pub struct Board {
    /// Its name.
    pub name: String,
    /// The publication by which it works.
    pub epoch: AtomicU64,
    /// The last request for a report that it has answered.
    pub reported: AtomicU64,
    /// Its last report.
    pub report: ArcSwapOption<ThreadReport>,
    /// Wakes it.
    pub wake: Wake,
}

/// What all threads see.
pub struct Shared {
    /// What judges packets from now on.
    snapshot: ArcSwap<Snapshot>,
    /// Counts publications.
    epoch: AtomicU64,
    /// Counts requests for reports.
    wanted: AtomicU64,
    /// Workers first, then host path threads.
    pub boards: Vec<Board>,
    /// What the device was built from.
    pub config: Config,
}

impl Shared {
    /// Publishes a snapshot; the epoch by which it is told apart.
    pub fn publish(&self, snapshot: Snapshot) -> u64 {
        self.snapshot.store(Arc::new(snapshot));
        let epoch = self.epoch.fetch_add(1, Release) + 1;
        self.wake_all();
        epoch
    }

    /// The present snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The number of the present publication.
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// The publication by which every thread works, at least.
    pub fn settled(&self) -> u64 {
        self.boards.iter().map(|b| b.epoch.load(Acquire)).min().unwrap_or(u64::MAX)
    }

    /// Asks every thread for a report; see [`reported`](Self::reported).
    pub fn request_reports(&self) -> u64 {
        let request = self.wanted.fetch_add(1, AcqRel) + 1;
        self.wake_all();
        request
    }

    /// The newest request.
    #[inline]
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Acquire)
    }

    /// Whether every thread has answered the request.
    pub fn reported(&self, request: u64) -> bool {
        self.boards.iter().all(|b| b.reported.load(Acquire) >= request)
    }

    /// The last report of every thread.
    pub fn reports(&self) -> Vec<Arc<ThreadReport>> {
        self.boards.iter().filter_map(|b| b.report.load_full()).collect()
    }

    fn wake_all(&self) {
        self.boards.iter().for_each(|b| b.wake.wake());
    }

    /// The room for flows in a new life of the device.
    pub fn new_flows(&self) -> Arc<FlowCapacity> {
        let profile = &self.config.profile;
        Arc::new(FlowCapacity::new(profile.limit("flow").map(u64::from), u64::from(profile.insert_rate)))
    }
}

/// Builds a device; `queues[port][worker]` are its ports' queues.
///
/// # Errors
/// If the memory for buffers or a wake-up descriptor cannot be had.
pub fn build(
    config: Config,
    queues: Vec<Vec<Box<dyn Port>>>,
) -> io::Result<(SoftDevice, Vec<Worker>, Vec<HostPath>)> {
    let workers = config.workers;
    let board = |name: String| -> io::Result<Board> {
        Ok(Board {
            name,
            epoch: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            report: ArcSwapOption::empty(),
            wake: Wake::new()?,
        })
    };
    let mut boards = Vec::new();
    for kind in ["worker", "host-path"] {
        for n in 0..workers {
            boards.push(board(format!("{kind}-{n}"))?);
        }
    }
    let flows = Arc::new(FlowCapacity::new(
        config.profile.limit("flow").map(u64::from),
        u64::from(config.profile.insert_rate),
    ));
    let unarmed = config.unarmed();
    let snapshot = Snapshot {
        version: Version(0),
        generation: Generation(1),
        device: View::empty(Target::Device, unarmed),
        host: View::empty(Target::Host, unarmed),
        flows,
    };
    let shared = Arc::new(Shared {
        snapshot: ArcSwap::from_pointee(snapshot),
        epoch: AtomicU64::new(1),
        wanted: AtomicU64::new(0),
        boards,
        config,
    });

    let mut per_worker: Vec<Vec<Box<dyn Port>>> = (0..workers).map(|_| Vec::new()).collect();
    for port in queues {
        for (worker, queue) in port.into_iter().enumerate().take(workers) {
            per_worker[worker].push(queue);
        }
    }
    let ring = shared.config.ring;
    let mut inboxes: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    let mut outboxes: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
    for (from, outbox) in outboxes.iter_mut().enumerate() {
        for (to, inbox) in inboxes.iter_mut().enumerate() {
            if from == to {
                outbox.push(None);
            } else {
                let (producer, consumer) = rtrb::RingBuffer::new(ring);
                outbox.push(Some(producer));
                inbox.push(consumer);
            }
        }
    }
    let (mut made_workers, mut hosts, mut mailboxes) = (Vec::new(), Vec::new(), Vec::new());
    for (id, ((ports, inbox), outbox)) in per_worker.into_iter().zip(inboxes).zip(outboxes).enumerate() {
        let (to_host, from_worker) = rtrb::RingBuffer::new(ring);
        let (to_worker, from_host) = rtrb::RingBuffer::new(ring * 2);
        let (mailbox, asks) = std::sync::mpsc::channel();
        let pool = Pool::new(shared.config.small_buffers, shared.config.large_buffers)?;
        made_workers.push(Worker::new(
            id,
            shared.clone(),
            ports,
            pool,
            to_host,
            from_host,
            inbox,
            outbox,
            asks,
        ));
        let (host_mailbox, host_asks) = std::sync::mpsc::channel();
        hosts.push(HostPath::new(id, shared.clone(), from_worker, to_worker, host_asks));
        mailboxes.push((mailbox, host_mailbox));
    }
    Ok((SoftDevice::new(shared, mailboxes), made_workers, hosts))
}
