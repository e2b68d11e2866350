//! A worker: the device's packet path. It owns its queues, its connections and its counters; nothing here locks or allocates
//! for a packet.

mod slow_path;
mod stopwatch;
mod tiers;
mod upkeep;

use crate::egress::Queue;
use crate::inspect::Inspection;
use crate::message::{NO_TAG, Owned, Promotion, Tag, ToHost, ToWorker};
use crate::parsed::{self, Kind, Parsed, addresses, ip_size};
use crate::program::{self, Response};
use crate::report::{self, Ask, FLOW_CHUNK, ThreadReport};
use crate::shared::{Board, Shared, Snapshot};
use functions::conntrack;
use model::MissPolicy;
use packet::{BATCH, Batch, ConsumeReason, CreateReason, DropReason, Frame, Ledger, Meta, Pool, PuntReason};
use pipeline::connection::{Connections, Handle, State, Tier};
use pipeline::judge::{Adjacency, Judgement, Step};
use pipeline::key::FlowKey;
use pipeline::parse::Class;
use pipeline::verdict::{VerdictId, Verdicts};
use ports::Port;
use rtrb::{Consumer, Producer};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::Receiver;
use stopwatch::Stopwatch;
pub use stopwatch::{Stage, StageTimes};

/// Messages of the host path taken in one poll.
const HOST_BUDGET: usize = 256;
/// Time in which a sweep visits every record, ms.
const SWEEP_MS: u32 = 1000;
/// The verdict of a record that is only a marker.
const NO_VERDICT: VerdictId = VerdictId(u32::MAX);

/// Where a frame came from; it decides how it is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Port,
    Worker,
    /// The host path did not know its connection, for the first time or once more.
    Again {
        once_more: bool,
    },
}

/// One frame of a batch between the passes.
#[derive(Clone, Copy)]
struct Slot {
    parsed: Parsed,
    hash: u64,
}

/// A worker.
pub struct Worker {
    id: usize,
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    epoch: u64,
    /// Marks flows as judged by the present snapshot; never 0.
    stamp: u32,
    pool: Pool,
    queues: Vec<Queue>,
    connections: Connections,
    verdicts: Verdicts,
    ledger: Ledger,
    flow_hits: u64,
    pending: u64,
    to_host: Producer<ToHost>,
    from_host: Consumer<ToWorker>,
    inbox: Vec<Consumer<Frame>>,
    outbox: Vec<Option<Producer<Frame>>>,
    asks: Receiver<Ask>,
    batch: Batch,
    slots: Box<[Option<Slot>]>,
    now: u64,
    now_ms: u32,
    sweep: u32,
    swept_ms: u32,
    /// Connections that this worker owns.
    owned: u64,
    /// Those of them that hold room in the flow table.
    device_tier: u64,
    stopwatch: Stopwatch,
}

impl Worker {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        ports: Vec<Box<dyn Port>>,
        pool: Pool,
        to_host: Producer<ToHost>,
        from_host: Consumer<ToWorker>,
        inbox: Vec<Consumer<Frame>>,
        outbox: Vec<Option<Producer<Frame>>>,
        asks: Receiver<Ask>,
    ) -> Self {
        Worker {
            id,
            snapshot: shared.snapshot(),
            epoch: 0,
            stamp: 0,
            pool,
            queues: ports.into_iter().map(Queue::new).collect(),
            connections: Connections::new(shared.config.seed),
            verdicts: Verdicts::default(),
            ledger: Ledger::new(),
            flow_hits: 0,
            pending: 0,
            to_host,
            from_host,
            inbox,
            outbox,
            asks,
            batch: Batch::new(),
            slots: Box::new([const { None }; BATCH]),
            now: 0,
            now_ms: 0,
            sweep: 0,
            swept_ms: 0,
            owned: 0,
            device_tier: 0,
            stopwatch: Stopwatch::default(),
            shared,
        }
    }

    /// This thread's board.
    pub fn board(&self) -> &Board {
        &self.shared.boards[self.id]
    }

    fn host_board(&self) -> &Board {
        &self.shared.boards[self.shared.config.workers + self.id]
    }

    /// Does what is to be done at `now` (ns, monotonic); whether there was anything.
    pub fn poll(&mut self, now: u64) -> bool {
        self.now = now;
        self.now_ms = (now / 1_000_000) as u32;
        self.stopwatch.lap(Stage::Other);
        self.renew();
        let mut busy = self.take_returned();
        busy |= self.take_handed_over();
        for port in 0..self.queues.len() {
            self.stopwatch.lap(Stage::Other);
            let received = self.queues[port].receive(&mut self.pool, &mut self.batch, now, &mut self.ledger);
            self.stopwatch.lap(Stage::Rx);
            if received.frames > 0 {
                for (_, frame) in self.batch.iter_mut() {
                    frame.meta_mut().port = port as u16;
                }
                self.batch(Origin::Port);
            }
            busy |= received.frames > 0 || !received.dropped.is_empty();
        }
        self.stopwatch.lap(Stage::Other);
        self.flush();
        self.stopwatch.lap(Stage::Tx);
        self.sweep();
        self.answer();
        busy
    }

    /// Begins to measure where this worker's time goes, by a clock that gives ns.
    pub fn measure(&mut self, clock: fn() -> u64) {
        self.stopwatch = Stopwatch::started(clock);
    }

    /// Time by stage since [`measure`](Self::measure); zeros without it.
    pub fn stage_times(&self) -> StageTimes {
        self.stopwatch.times
    }

    /// Descriptors that tell of work.
    pub fn wait_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.queues.iter().filter_map(Queue::wait_fd).collect()
    }

    /// Whether a port has no descriptor to wait for, so that it must be polled.
    pub fn must_poll(&self) -> bool {
        self.queues.iter().any(|q| q.wait_fd().is_none())
    }

    /// Takes the newest snapshot; flows judged by an older one are judged again when next used.
    fn renew(&mut self) {
        let epoch = self.shared.epoch();
        if epoch == self.epoch {
            return;
        }
        let snapshot = self.shared.snapshot();
        if snapshot.generation != self.snapshot.generation {
            self.device_tier = 0;
        }
        self.snapshot = snapshot;
        self.epoch = epoch;
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.board().epoch.store(epoch, Release);
    }

    fn flush(&mut self) {
        for queue in &mut self.queues {
            queue.flush(&mut self.pool, &mut self.ledger);
        }
    }

    fn take_handed_over(&mut self) -> bool {
        let mut busy = false;
        for ring in 0..self.inbox.len() {
            while !self.batch.is_full() {
                let Ok(frame) = self.inbox[ring].pop() else { break };
                if let Err(frame) = self.batch.push(frame) {
                    frame.release();
                }
            }
            if !self.batch.is_empty() {
                busy = true;
                self.batch(Origin::Worker);
            }
        }
        busy
    }

    /// The passes over a batch.
    fn batch(&mut self, origin: Origin) {
        let mut batch = std::mem::take(&mut self.batch);
        let mut slots = std::mem::take(&mut self.slots);
        for slot in 0..batch.len() {
            slots[slot] = self.first_pass(&mut batch, slot, origin);
        }
        self.stopwatch.lap(Stage::Parse);
        for slot in 0..batch.len() {
            if let Some(found) = &slots[slot]
                && let Some(frame) = batch.take(slot)
            {
                self.decide(frame, found, origin);
            }
        }
        self.slots = slots;
        batch.finish();
        self.batch = batch;
        self.stopwatch.lap(Stage::Decide);
    }

    /// Parse, find the ENI, find the owner, and bring the flow's place near.
    #[inline]
    fn first_pass(&mut self, batch: &mut Batch, slot: usize, origin: Origin) -> Option<Slot> {
        let frame = batch.get_mut(slot)?;
        let looked = parsed::look(frame, &self.snapshot.host);
        let count = frame.wire();
        let port = frame.meta().port as usize;
        match origin {
            Origin::Port => {
                self.ledger.entered.port += count;
                let len = frame.len();
                self.queues[port].came_in(count, len);
            }
            Origin::Worker => self.ledger.entered.worker += count,
            Origin::Again { .. } => self.ledger.entered.host_path += count,
        }
        let parsed = match &looked {
            Ok(parsed) => parsed,
            Err(reason) => {
                let frame = batch.take(slot)?;
                self.drop(frame, *reason);
                return None;
            }
        };
        if parsed.kind == Kind::Neighbor {
            let frame = batch.take(slot)?;
            self.neighbor(frame, parsed);
            return None;
        }
        if self.shared.config.workers > 1 && origin == Origin::Port {
            let owner = owner(&parsed.key, &self.shared);
            if owner != self.id {
                let frame = batch.take(slot)?;
                self.hand_over(frame, owner);
                return None;
            }
        }
        let hash = self.connections.hash(&parsed.key);
        self.connections.prefetch(hash);
        Some(Slot { parsed: *parsed, hash })
    }

    fn hand_over(&mut self, frame: Frame, to: usize) {
        let count = frame.wire();
        match self.outbox[to].as_mut().map(|ring| ring.push(frame)) {
            Some(Ok(())) => {
                self.ledger.left.worker += count;
                self.shared.boards[to].wake.wake();
            }
            Some(Err(rtrb::PushError::Full(frame))) => self.drop(frame, DropReason::HandOverFull),
            None => {}
        }
    }

    #[inline]
    fn decide(&mut self, frame: Frame, slot: &Slot, origin: Origin) {
        let key = &slot.parsed.key;
        match self.connections.find(slot.hash, key) {
            Some(handle) => self.known(frame, &slot.parsed, handle, origin),
            None if slot.parsed.kind == Kind::Error => self.stray_error(frame, &slot.parsed),
            None => self.first(frame, &slot.parsed),
        }
    }

    /// A packet of a connection that is on record.
    #[inline]
    fn known(&mut self, frame: Frame, parsed: &Parsed, handle: Handle, origin: Origin) {
        let record = handle.record();
        if self.connections.get(record).flows[handle.dir()].stamp != self.stamp {
            match self.refresh(handle, origin) {
                Refreshed::Good if self.connections.is_of(record, handle.dir(), &parsed.key) => {}
                // It leads elsewhere by now, and this was an answer from where it led before.
                Refreshed::Good => return self.again(frame, parsed),
                Refreshed::Gone => return self.again(frame, parsed),
                Refreshed::Drop(reason) => return self.drop(frame, reason),
                Refreshed::Punt(reason) => return self.punt(frame, reason, record),
            }
        }
        if parsed.kind == Kind::Error {
            let (source, _) = addresses(frame.data(), &parsed.headers);
            match self.error_source(&frame, source) {
                Step::Continue => return self.forward(frame, parsed, handle),
                Step::Drop(reason) => return self.drop(frame, reason),
                Step::Punt(reason) => {
                    return match self.surrender(record, reason) {
                        Ok(()) => self.punt(frame, reason, record),
                        Err(refusal) => self.drop(frame, refusal),
                    };
                }
            }
        }
        let connection = self.connections.get_mut(record);
        if conntrack::reopen(&connection.cold.track, &parsed.headers) {
            return if self.forget(record) {
                self.first(frame, parsed)
            } else {
                self.punt(frame, PuntReason::HostOwned, record)
            };
        }
        match conntrack::packet(&mut connection.cold.track, handle.dir(), &parsed.headers) {
            Ok(()) => {
                connection.flows[handle.dir()].seen = self.now_ms;
                self.forward(frame, parsed, handle);
            }
            Err(reason) => self.drop(frame, reason),
        }
    }

    /// Sends a packet under its connection's verdict.
    #[inline]
    fn forward(&mut self, mut frame: Frame, parsed: &Parsed, handle: Handle) {
        let flow = &mut self.connections.get_mut(handle.record()).flows[handle.dir()];
        let (port, mac, verdict) = (flow.port, flow.mac, flow.verdict);
        let mtu = self.shared.config.ports[port as usize].mtu;
        if ip_size(&frame, &parsed.headers) > mtu {
            return self.drop(frame, DropReason::EgressMtuExceeded);
        }
        flow.frames = flow.frames.saturating_add(1);
        self.verdicts.count(verdict, frame.wire());
        self.flow_hits += 1;
        frame.data_mut()[..6].copy_from_slice(&mac);
        self.send(frame, port);
    }

    #[inline]
    fn send(&mut self, frame: Frame, port: u16) {
        #[cfg(feature = "planted-leak")]
        if planted_leak() {
            frame.release();
            return;
        }
        self.queues[port as usize].send(frame, &mut self.pool, &mut self.ledger);
    }

    fn drop(&mut self, frame: Frame, reason: DropReason) {
        self.ledger.drop(reason, frame.wire());
        self.queues[frame.meta().port as usize].dropped(reason);
        self.pool.free(frame);
    }
}

/// How a connection stands after a look at the newest snapshot.
enum Refreshed {
    Good,
    Gone,
    Drop(DropReason),
    Punt(PuntReason),
}

/// What answering a neighbour's question is counted as.
pub(crate) fn answered(class: Class) -> (ConsumeReason, CreateReason) {
    match class {
        Class::ArpRequest => (ConsumeReason::ArpAnswered, CreateReason::ArpReply),
        _ => (ConsumeReason::NdAnswered, CreateReason::NdAdvertisement),
    }
}

/// The worker that owns a connection.
pub(crate) fn owner(key: &FlowKey, shared: &Shared) -> usize {
    key.hash(shared.config.seed) as usize % shared.config.workers
}

/// A fault for the tests of the law: one frame in 500 is lost without being counted.
#[cfg(feature = "planted-leak")]
fn planted_leak() -> bool {
    use std::sync::atomic::AtomicU64;
    static SENT: AtomicU64 = AtomicU64::new(0);
    SENT.fetch_add(1, Relaxed) % 500 == 499
}
