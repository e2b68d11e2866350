//! A worker: the device's packet path. It owns its queues, its connections and its counters; nothing here locks or allocates
//! for a packet.

use crate::egress::Queue;
use crate::inspect::Inspection;
use crate::message::{NO_TAG, Owned, Promotion, Tag, ToHost, ToWorker};
use crate::parsed::{self, Kind, Parsed, addresses, ip_size};
use crate::program::{self, Response};
use crate::report::{self, Ask, FLOW_CHUNK, ThreadReport};
use crate::shared::{Board, Shared, Snapshot};
use functions::conntrack;
use model::MissPolicy;
use packet::{BATCH, Batch, ConsumeReason, CreateReason, DropReason, Frame, Ledger, Pool, PuntReason};
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
    Again,
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
    slots: Box<[Option<Slot>; BATCH]>,
    now: u64,
    now_ms: u32,
    sweep: u32,
    swept_ms: u32,
    device_tier: u64,
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
            device_tier: 0,
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
        self.renew();
        let mut busy = self.from_host_path();
        busy |= self.from_workers();
        for port in 0..self.queues.len() {
            let received = self.queues[port].receive(&mut self.pool, &mut self.batch, now, &mut self.ledger);
            if received.frames > 0 {
                for (_, frame) in self.batch.iter_mut() {
                    frame.meta_mut().port = port as u16;
                }
                self.batch(Origin::Port);
            }
            busy |= received.frames > 0 || !received.dropped.is_empty();
        }
        self.flush();
        self.sweep();
        self.answer();
        busy
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

    fn from_workers(&mut self) -> bool {
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

    fn from_host_path(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..HOST_BUDGET {
            let Ok(message) = self.from_host.pop() else { break };
            busy = true;
            match message {
                ToWorker::Transmit { frame, port, tag } => {
                    self.landed(tag);
                    self.ledger.entered.host_path += frame.wire();
                    self.send(frame, port);
                }
                ToWorker::Again { frame, tag } => {
                    self.disowned(tag);
                    self.landed(tag);
                    if self.batch.push(frame).is_ok() {
                        self.batch(Origin::Again);
                    }
                }
                ToWorker::Ended { tag } => self.landed(tag),
                ToWorker::Own(owned) => self.own(&owned),
                ToWorker::Gone(key) => self.gone(&key),
                ToWorker::Promote(promotion) => self.promote(&promotion),
            }
        }
        busy
    }

    /// The passes over a batch.
    fn batch(&mut self, origin: Origin) {
        let mut batch = std::mem::take(&mut self.batch);
        for slot in 0..batch.len() {
            self.slots[slot] = self.first_pass(&mut batch, slot, origin);
        }
        for slot in 0..batch.len() {
            if let Some(found) = self.slots[slot]
                && let Some(frame) = batch.take(slot)
            {
                self.decide(frame, &found, origin);
            }
        }
        batch.finish();
        self.batch = batch;
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
            Origin::Again => self.ledger.entered.host_path += count,
        }
        let parsed = match looked {
            Ok(parsed) => parsed,
            Err(reason) => {
                let frame = batch.take(slot)?;
                self.drop(frame, reason);
                return None;
            }
        };
        if parsed.kind == Kind::Neighbor {
            let frame = batch.take(slot)?;
            self.neighbor(frame, &parsed);
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
        Some(Slot { parsed, hash })
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
            match self.refresh(record, origin) {
                Refreshed::Good => {}
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
                    return match self.to_host_path(record, reason) {
                        Refreshed::Punt(reason) => self.punt(frame, reason, record),
                        _ => self.drop(frame, DropReason::HostPathOverCapacity),
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

    fn again(&mut self, frame: Frame, parsed: &Parsed) {
        if parsed.kind == Kind::Error { self.stray_error(frame, parsed) } else { self.first(frame, parsed) }
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

    /// Judges a connection again that was judged by an older snapshot, or says who decides it.
    fn refresh(&mut self, record: u32, origin: Origin) -> Refreshed {
        let cold = &mut self.connections.get_mut(record).cold;
        match cold.tier {
            Tier::Host => return Refreshed::Punt(PuntReason::HostOwned),
            Tier::Pending if cold.in_flight > 0 && origin != Origin::Again => {
                return Refreshed::Punt(PuntReason::Pending);
            }
            Tier::Pending if cold.in_flight == 0 => {
                cold.tier = Tier::Device;
                self.pending -= 1;
            }
            _ => {}
        }
        let (step, judgement) = self.judge(record);
        match step {
            Step::Continue => {}
            Step::Drop(DropReason::NotArmed) => return Refreshed::Drop(DropReason::NotArmed),
            Step::Drop(_) => {
                return if self.forget(record) {
                    Refreshed::Gone
                } else {
                    Refreshed::Punt(PuntReason::HostOwned)
                };
            }
            Step::Punt(reason) => return self.to_host_path(record, reason),
        }
        let generation = self.snapshot.generation.0 as u16;
        if self.connections.get(record).cold.generation != generation {
            if !self.snapshot.flows.reserve(self.now) {
                return self.to_host_path(record, PuntReason::FlowTableFull);
            }
            self.device_tier += 1;
            self.connections.get_mut(record).cold.generation = generation;
        }
        self.install(record, &judgement);
        Refreshed::Good
    }

    fn judge(&self, record: u32) -> (Step, Judgement<'static>) {
        let connection = self.connections.get(record);
        program::judge(&self.snapshot.device, &connection.flows[0].key, connection.cold.port, None)
    }

    /// Writes a verdict into both directions.
    fn install(&mut self, record: u32, judgement: &Judgement<'_>) {
        let verdict = self.verdicts.intern(&judgement.hits);
        let connection = self.connections.get_mut(record);
        // While punted packets are under way, every packet takes the slow side, so that order holds.
        let stamp = if connection.cold.tier == Tier::Device { self.stamp } else { 0 };
        let old = connection.flows[0].verdict;
        for (flow, way) in connection.flows.iter_mut().zip([judgement.forward, judgement.backward]) {
            flow.stamp = stamp;
            flow.verdict = verdict;
            flow.port = way.port;
            flow.mac = way.mac;
        }
        let reverse = judgement.key.reversed(judgement.forward.eni);
        let paired = connection.cold.paired && connection.flows[1].key == reverse;
        if old != NO_VERDICT {
            self.verdicts.release(old);
        }
        if !paired {
            self.pair(record, &reverse);
        }
    }

    fn pair(&mut self, record: u32, reverse: &FlowKey) {
        if self.connections.find(self.connections.hash(reverse), reverse).is_none() {
            self.connections.pair(record, reverse);
        }
    }

    /// The device cannot decide this connection any more.
    fn to_host_path(&mut self, record: u32, reason: PuntReason) -> Refreshed {
        if self.shared.config.miss_policy == MissPolicy::Drop && reason != PuntReason::NotArmed {
            return Refreshed::Drop(DropReason::MissPolicyDrop);
        }
        if self.to_host.slots() < 2 {
            return Refreshed::Drop(DropReason::HostPathOverCapacity);
        }
        self.adopt(record);
        Refreshed::Punt(reason)
    }

    /// Gives a connection to the host path; the record stays as a marker.
    fn adopt(&mut self, record: u32) {
        if self.connections.get(record).cold.tier == Tier::Host {
            return;
        }
        let state = self.connections.get(record).state();
        if self.to_host.push(ToHost::Adopt(Box::new(state))).is_ok() {
            self.leave_device(record);
            self.mark(record);
            self.connections.get_mut(record).cold.adopted = true;
        }
    }

    /// Gives back what a record holds of the device.
    fn leave_device(&mut self, record: u32) {
        let connection = self.connections.get(record);
        let (cold, verdict) = (connection.cold, connection.flows[0].verdict);
        if cold.tier == Tier::Pending {
            self.pending -= 1;
        }
        if cold.tier != Tier::Host && cold.generation == self.snapshot.generation.0 as u16 {
            self.snapshot.flows.release();
            self.device_tier -= 1;
        }
        if verdict != NO_VERDICT {
            self.verdicts.release(verdict);
        }
    }

    /// Ends a record, now, or where punted frames are under way, when they have landed; whether it ended now.
    fn forget(&mut self, record: u32) -> bool {
        self.leave_device(record);
        if self.connections.get(record).cold.in_flight > 0 {
            self.mark(record);
            self.connections.get_mut(record).cold.ended = true;
            return false;
        }
        self.connections.remove(record);
        true
    }

    /// Makes a record a marker of the host path.
    fn mark(&mut self, record: u32) {
        let connection = self.connections.get_mut(record);
        connection.cold.tier = Tier::Host;
        for flow in &mut connection.flows {
            flow.stamp = 0;
            flow.verdict = NO_VERDICT;
        }
    }

    /// A packet of no connection.
    fn first(&mut self, frame: Frame, parsed: &Parsed) {
        let port = frame.meta().port;
        let (step, judgement) = program::judge(&self.snapshot.device, &parsed.key, port, None);
        match step {
            Step::Continue => {}
            Step::Drop(reason) => {
                self.verdicts.count_once(&judgement.hits, frame.wire());
                return self.drop(frame, reason);
            }
            Step::Punt(reason) => return self.punt_first(frame, &parsed.key, reason),
        }
        let track = match conntrack::open(&parsed.headers) {
            Ok(track) => track,
            Err(reason) => return self.drop(frame, reason),
        };
        if self.connections.len() >= self.shared.config.max_connections {
            return self.drop(frame, DropReason::ConnectionTableFull);
        }
        if !self.snapshot.flows.reserve(self.now) {
            return self.punt_first(frame, &parsed.key, PuntReason::FlowTableFull);
        }
        self.device_tier += 1;
        let record = self.connections.insert(&parsed.key, port, self.now_ms);
        let generation = self.snapshot.generation.0 as u16;
        let cold = &mut self.connections.get_mut(record).cold;
        cold.track = track;
        cold.tier = Tier::Device;
        cold.generation = generation;
        self.install(record, &judgement);
        self.forward(frame, parsed, Handle::new(record, 0));
    }

    /// An ICMP error about no connection on record.
    fn stray_error(&mut self, frame: Frame, parsed: &Parsed) {
        let (source, _) = addresses(frame.data(), &parsed.headers);
        match self.error_source(&frame, source) {
            Step::Continue => self.drop(frame, DropReason::IcmpErrorNoConnection),
            Step::Drop(reason) => self.drop(frame, reason),
            Step::Punt(reason) => self.punt_or_drop(frame, reason, NO_TAG),
        }
    }

    fn error_source(&self, frame: &Frame, source: u128) -> Step {
        let view = &self.snapshot.device;
        match program::eni_of(view, frame.meta().port, frame.meta().eni) {
            Ok(eni) => program::error_source(view, eni, source),
            Err(step) => step,
        }
    }

    fn neighbor(&mut self, mut frame: Frame, parsed: &Parsed) {
        let port = frame.meta().port;
        let snapshot = self.snapshot.clone();
        let response = match program::eni_of(&snapshot.device, port, frame.meta().eni) {
            Ok(eni) => {
                let before = frame.wire();
                match program::respond(&snapshot.device, eni, &mut frame, &parsed.headers) {
                    Response::Answered => {
                        let (consumed, created) = answered(parsed.headers.class);
                        self.ledger.consume(consumed, before);
                        self.ledger.create(created, frame.wire());
                        return self.send(frame, port);
                    }
                    other => other,
                }
            }
            Err(Step::Drop(reason)) => Response::Drop(reason),
            Err(Step::Punt(reason)) => Response::Punt(reason),
            Err(Step::Continue) => Response::Punt(PuntReason::TableMiss),
        };
        match response {
            Response::Answered => {}
            Response::Ignored(reason) => {
                self.ledger.consume(reason, frame.wire());
                self.pool.free(frame);
            }
            Response::Drop(reason) => self.drop(frame, reason),
            Response::Punt(reason) => self.punt_or_drop(frame, reason, NO_TAG),
        }
    }

    /// Punts the first packet of a connection, and marks the connection as the host path's.
    fn punt_first(&mut self, frame: Frame, key: &FlowKey, reason: PuntReason) {
        if self.shared.config.miss_policy == MissPolicy::Drop && reason != PuntReason::NotArmed {
            return self.drop(frame, DropReason::MissPolicyDrop);
        }
        if self.connections.len() >= self.shared.config.max_connections {
            return self.drop(frame, DropReason::ConnectionTableFull);
        }
        if self.to_host.is_full() {
            return self.drop(frame, DropReason::HostPathOverCapacity);
        }
        let record = self.connections.insert(key, frame.meta().port, self.now_ms);
        self.punt(frame, reason, record);
    }

    fn punt_or_drop(&mut self, frame: Frame, reason: PuntReason, tag: Tag) {
        if self.shared.config.miss_policy == MissPolicy::Drop && reason != PuntReason::NotArmed {
            return self.drop(frame, DropReason::MissPolicyDrop);
        }
        self.punt(frame, reason, tag);
    }

    fn punt(&mut self, frame: Frame, reason: PuntReason, tag: Tag) {
        let count = frame.wire();
        match self.to_host.push(ToHost::Frame { frame, reason, tag }) {
            Ok(()) => {
                self.ledger.punt(reason, count);
                if tag != NO_TAG {
                    self.connections.get_mut(tag).cold.in_flight += 1;
                }
                self.host_board().wake.wake();
            }
            Err(rtrb::PushError::Full(ToHost::Frame { frame, .. })) => {
                self.drop(frame, DropReason::HostPathOverCapacity);
            }
            Err(_) => {}
        }
    }

    fn drop(&mut self, frame: Frame, reason: DropReason) {
        self.ledger.drop(reason, frame.wire());
        self.queues[frame.meta().port as usize].dropped(reason);
        self.pool.free(frame);
    }

    /// A punted frame has come back.
    fn landed(&mut self, tag: Tag) {
        if tag == NO_TAG {
            return;
        }
        let cold = &mut self.connections.get_mut(tag).cold;
        cold.in_flight -= 1;
        if cold.ended && cold.in_flight == 0 {
            self.forget(tag);
        }
    }

    /// The host path says that a connection is not its own. Unless it was given to it meanwhile, the marker is void.
    fn disowned(&mut self, tag: Tag) {
        if tag != NO_TAG {
            let cold = &mut self.connections.get_mut(tag).cold;
            cold.ended |= cold.tier == Tier::Host && !cold.adopted;
        }
    }

    fn own(&mut self, owned: &Owned) {
        let record = match self.connections.find(self.connections.hash(&owned.key), &owned.key) {
            Some(handle) => {
                let record = handle.record();
                let cold = &mut self.connections.get_mut(record).cold;
                if cold.tier != Tier::Host || handle.dir() != 0 {
                    let _ = self.to_host.push(ToHost::Forget(owned.key));
                    return;
                }
                cold.ended = false;
                record
            }
            None => self.connections.insert(&owned.key, owned.port, self.now_ms),
        };
        self.pair(record, &owned.reverse);
    }

    fn gone(&mut self, key: &FlowKey) {
        let Some(handle) = self.connections.find(self.connections.hash(key), key) else { return };
        let cold = &mut self.connections.get_mut(handle.record()).cold;
        if cold.tier != Tier::Host || handle.dir() != 0 {
            return;
        }
        if cold.in_flight > 0 {
            cold.ended = true;
        } else {
            self.forget(handle.record());
        }
    }

    fn promote(&mut self, promotion: &Promotion) {
        let state = &promotion.state;
        let found = self.connections.find(self.connections.hash(&state.key), &state.key);
        let record = match found {
            Some(handle)
                if handle.dir() == 0 && self.connections.get(handle.record()).cold.tier == Tier::Host =>
            {
                handle.record()
            }
            None => self.connections.insert(&state.key, state.port, self.now_ms),
            Some(_) => {
                if promotion.generation == self.snapshot.generation.0 {
                    self.snapshot.flows.release();
                }
                return;
            }
        };
        if promotion.generation == self.snapshot.generation.0 {
            self.device_tier += 1;
        }
        self.pending += 1;
        self.fill(record, state);
        let cold = &mut self.connections.get_mut(record).cold;
        cold.tier = Tier::Pending;
        cold.ended = false;
        cold.adopted = false;
        cold.generation = promotion.generation as u16;
        self.pair(record, &state.key.reversed(state.forward.eni));
    }

    fn fill(&mut self, record: u32, state: &State) {
        let now_ms = self.now_ms;
        let connection = self.connections.get_mut(record);
        for (flow, way) in connection.flows.iter_mut().zip([state.forward, state.backward]) {
            let Adjacency { port, mac, .. } = way;
            flow.port = port;
            flow.mac = mac;
            flow.seen = now_ms;
            flow.stamp = 0;
        }
        connection.flows[0].frames = state.frames;
        connection.cold.track = state.track;
        connection.cold.opened = state.opened;
        connection.cold.port = state.port;
    }

    /// Ends connections that were idle for too long, and judges the others again after a change: all records once a second.
    fn sweep(&mut self) {
        let records = self.connections.capacity();
        let elapsed = self.now_ms.wrapping_sub(self.swept_ms).min(SWEEP_MS);
        let budget = (u64::from(records) * u64::from(elapsed) / u64::from(SWEEP_MS)) as u32;
        if budget == 0 {
            return;
        }
        self.swept_ms = self.now_ms;
        for _ in 0..budget {
            self.sweep = if self.sweep + 1 < records { self.sweep + 1 } else { 0 };
            let connection = self.connections.get(self.sweep);
            let (cold, flow) = (connection.cold, connection.flows[0]);
            if !cold.used || cold.tier == Tier::Host || cold.in_flight > 0 {
                continue;
            }
            let idle = self.now_ms.wrapping_sub(connection.seen());
            if idle > conntrack::idle_limit_ms(&cold.track, flow.key.proto) {
                self.forget(self.sweep);
            } else if flow.stamp != self.stamp {
                let (step, judgement) = self.judge(self.sweep);
                match step {
                    Step::Continue if cold.generation == self.snapshot.generation.0 as u16 => {
                        self.install(self.sweep, &judgement);
                    }
                    Step::Drop(reason) if reason != DropReason::NotArmed => {
                        self.forget(self.sweep);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Answers questions and requests for reports.
    fn answer(&mut self) {
        while let Ok(ask) = self.asks.try_recv() {
            match ask {
                Ask::Inspect(inspection) => self.inspect(inspection),
                Ask::Flows(from, reply) => {
                    let owner = &self.board().name;
                    let _ = reply.send(report::flows(
                        &self.connections,
                        from,
                        FLOW_CHUNK,
                        owner,
                        self.snapshot.version,
                        self.now_ms,
                        &self.shared.config.ports,
                        |c| c.cold.tier != Tier::Host,
                    ));
                }
            }
        }
        let wanted = self.shared.wanted();
        if self.board().reported.load(Relaxed) < wanted {
            let report = self.report();
            self.board().report.store(Some(Arc::new(report)));
            self.board().reported.store(wanted, Release);
        }
    }

    /// What this worker has to tell.
    pub fn report(&self) -> ThreadReport {
        ThreadReport {
            name: self.board().name.clone(),
            ledger: self.ledger.clone(),
            ports: self.queues.iter().map(|q| q.count.clone()).collect(),
            hits: self.verdicts.totals(),
            flow_hits: self.flow_hits,
            device: self.device_tier.saturating_sub(self.pending),
            pending: self.pending,
            host: 0,
            cpu_ns: report::thread_cpu_ns(),
        }
    }

    /// Says what becomes of a packet, and counts it if it is a probe.
    fn inspect(&mut self, mut inspection: Box<Inspection>) {
        let decided = inspection.at_worker(&self.snapshot, &self.connections, self.shared.config.miss_policy);
        if !decided {
            let to_host = ToHost::Inspect(inspection);
            match self.to_host.push(to_host) {
                Ok(()) => self.host_board().wake.wake(),
                Err(rtrb::PushError::Full(ToHost::Inspect(inspection))) => {
                    inspection.answer(&self.shared.config.ports)
                }
                Err(_) => {}
            }
            return;
        }
        if inspection.probe {
            let count = inspection.count();
            self.ledger.create(CreateReason::Probe, count);
            self.ledger.consume(ConsumeReason::Probe, count);
            self.verdicts.count_once(&inspection.hits, count);
        }
        inspection.answer(&self.shared.config.ports);
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
