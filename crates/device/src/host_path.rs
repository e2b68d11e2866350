//! The host path: a thread beside each worker that takes what the device does not decide. It has the full tables, owns the
//! connections that it decides, and offers them to the device when the device could decide them.

use crate::host_queues::{HostQueues, Punted};
use crate::inspect::Inspection;
use crate::message::{Owned, Promotion, Tag, ToHost, ToWorker};
use crate::parsed::{self, Kind, Parsed, addresses, ip_size};
use crate::program::{self, Response};
use crate::report::{self, Ask, FLOW_CHUNK, ThreadReport};
use crate::shared::{Board, Shared, Snapshot};
use crate::worker::answered;
use functions::conntrack;
use packet::{ConsumeReason, CreateReason, DropReason, Frame, Ledger, PuntReason};
use pipeline::connection::{Connections, Handle, State, Tier};
use pipeline::judge::{Judgement, Step};
use pipeline::key::FlowKey;
use pipeline::verdict::{VerdictId, Verdicts};
use rtrb::{Consumer, Producer};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::Receiver;

/// Frames served in one poll.
const BUDGET: usize = 64;
/// Messages that one frame may cause.
const MESSAGES: usize = 5;
/// Frames of a connection between two offers to the device, while its tables stay the same.
const OFFER_EVERY: u32 = 64;
/// Time in which a sweep visits every record, ms.
const SWEEP_MS: u32 = 1000;
const NO_VERDICT: VerdictId = VerdictId(u32::MAX);

/// A host path thread's state.
pub struct HostPath {
    id: usize,
    shared: Arc<Shared>,
    snapshot: Arc<Snapshot>,
    epoch: u64,
    stamp: u32,
    queues: HostQueues,
    connections: Connections,
    verdicts: Verdicts,
    ledger: Ledger,
    from_worker: Consumer<ToHost>,
    to_worker: Producer<ToWorker>,
    asks: Receiver<Ask>,
    now: u64,
    now_ms: u32,
    sweep: u32,
    swept_ms: u32,
}

impl HostPath {
    pub(crate) fn new(
        id: usize,
        shared: Arc<Shared>,
        from_worker: Consumer<ToHost>,
        to_worker: Producer<ToWorker>,
        asks: Receiver<Ask>,
    ) -> Self {
        HostPath {
            id,
            snapshot: shared.snapshot(),
            epoch: 0,
            stamp: 0,
            queues: HostQueues::new(shared.config.host_queue),
            connections: Connections::new(shared.config.seed ^ 1),
            verdicts: Verdicts::default(),
            ledger: Ledger::new(),
            from_worker,
            to_worker,
            asks,
            now: 0,
            now_ms: 0,
            sweep: 0,
            swept_ms: 0,
            shared,
        }
    }

    /// This thread's board.
    pub fn board(&self) -> &Board {
        &self.shared.boards[self.shared.config.workers + self.id]
    }

    /// Does what is to be done at `now` (ns, monotonic); whether there was anything.
    pub fn poll(&mut self, now: u64) -> bool {
        self.now = now;
        self.now_ms = (now / 1_000_000) as u32;
        let epoch = self.shared.epoch();
        if epoch != self.epoch {
            self.snapshot = self.shared.snapshot();
            self.epoch = epoch;
            self.stamp = self.stamp.wrapping_add(1).max(1);
            self.board().epoch.store(epoch, Release);
        }
        let mut busy = self.take_in();
        for _ in 0..BUDGET {
            if self.to_worker.slots() < MESSAGES {
                break;
            }
            let Some(punted) = self.queues.pop() else { break };
            busy = true;
            self.serve(punted);
        }
        self.ledger.held = self.queues.len() as u64;
        if busy {
            self.shared.boards[self.id].wake.wake();
        }
        self.sweep();
        self.answer();
        busy
    }

    /// Sorts what the worker sent: frames into their ENI's queue, the rest at once.
    fn take_in(&mut self) -> bool {
        let mut busy = false;
        while self.to_worker.slots() >= MESSAGES {
            let Ok(message) = self.from_worker.pop() else { break };
            busy = true;
            match message {
                ToHost::Frame { frame, reason, tag } => {
                    self.ledger.entered.punted += frame.wire();
                    if let Err(punted) = self.queues.push(Punted { frame, reason, tag }) {
                        let first = is_first(reason);
                        self.drop(punted.frame, DropReason::HostPathOverCapacity, tag, first);
                    }
                }
                ToHost::Adopt(state) => self.adopt(&state),
                ToHost::Forget(key) => {
                    if let Some(handle) = self.connections.find(self.connections.hash(&key), &key) {
                        self.remove(handle.record());
                    }
                }
                ToHost::Inspect(inspection) => self.inspect(inspection),
            }
        }
        busy
    }

    fn serve(&mut self, punted: Punted) {
        let Punted { mut frame, reason, tag } = punted;
        let parsed = match parsed::look(&mut frame, &self.snapshot.host) {
            Ok(parsed) => parsed,
            Err(why) => return self.drop(frame, why, tag, is_first(reason)),
        };
        if parsed.kind == Kind::Neighbor {
            return self.neighbor(frame, &parsed, tag);
        }
        let hash = self.connections.hash(&parsed.key);
        match self.connections.find(hash, &parsed.key) {
            Some(handle) => self.known(frame, &parsed, handle, tag),
            None if !is_first(reason) => self.send(ToWorker::Again { frame, tag }),
            None if parsed.kind == Kind::Error => self.stray_error(frame, &parsed, tag),
            None => self.first(frame, &parsed, tag),
        }
    }

    fn known(&mut self, frame: Frame, parsed: &Parsed, handle: Handle, tag: Tag) {
        let record = handle.record();
        let fresh = self.connections.get(record).flows[handle.dir()].stamp == self.stamp;
        // It may lead elsewhere by now, and this be an answer from where it led before.
        let stands =
            fresh || self.refresh(record) && self.connections.is_of(record, handle.dir(), &parsed.key);
        if !stands {
            return if parsed.kind == Kind::Error {
                self.stray_error(frame, parsed, tag)
            } else {
                self.first(frame, parsed, tag)
            };
        }
        if parsed.kind == Kind::Error {
            return match self.error_source(&frame, parsed) {
                Step::Drop(why) => self.drop(frame, why, tag, false),
                _ => self.forward(frame, parsed, handle, tag),
            };
        }
        let connection = self.connections.get_mut(record);
        if conntrack::reopen(&connection.cold.track, &parsed.headers) {
            self.end(record);
            return self.first(frame, parsed, tag);
        }
        match conntrack::packet(&mut connection.cold.track, handle.dir(), &parsed.headers) {
            Ok(()) => {
                connection.flows[handle.dir()].seen = self.now_ms;
                self.forward(frame, parsed, handle, tag);
                self.offer(record);
            }
            Err(why) => self.drop(frame, why, tag, false),
        }
    }

    /// An ICMP error about no connection on record.
    fn stray_error(&mut self, frame: Frame, parsed: &Parsed, tag: Tag) {
        let why = match self.error_source(&frame, parsed) {
            Step::Drop(why) => why,
            _ => DropReason::IcmpErrorNoConnection,
        };
        self.drop(frame, why, tag, false);
    }

    /// A packet of no connection: judged by the full policy.
    fn first(&mut self, frame: Frame, parsed: &Parsed, tag: Tag) {
        let port = frame.meta().port;
        let (step, judgement) = program::judge(&self.snapshot.host, &parsed.key, port, None);
        let refusal = match step {
            Step::Continue => match conntrack::open(&parsed.headers) {
                Ok(_) if self.connections.len() >= self.shared.config.max_connections => {
                    Some(DropReason::ConnectionTableFull)
                }
                Ok(track) => {
                    let record = self.connections.insert(&parsed.key, port, self.now_ms);
                    self.connections.get_mut(record).cold.track = track;
                    self.install(record, &judgement);
                    self.own(record);
                    self.forward(frame, parsed, Handle::new(record, 0), tag);
                    return self.offer(record);
                }
                Err(why) => Some(why),
            },
            Step::Drop(why) => {
                self.verdicts.count_once(&judgement.hits, frame.wire());
                Some(why)
            }
            // The full tables decide everything; what they do not know is not there.
            Step::Punt(_) => Some(DropReason::NoEni),
        };
        if let Some(why) = refusal {
            self.send(ToWorker::Gone(parsed.key));
            self.drop(frame, why, tag, false);
        }
    }

    fn own(&mut self, record: u32) {
        let connection = self.connections.get(record);
        let [key, reverse] = [connection.flows[0].key, connection.flows[1].key];
        let port = connection.cold.port;
        self.send(ToWorker::Own(Box::new(Owned { key, reverse, port })));
    }

    fn judge(&self, record: u32) -> (Step, Judgement<'static>) {
        let (full, connection) = (&self.snapshot.host, self.connections.get(record));
        program::judge_again(full, full, &connection.flows[0].key, connection.cold.port, None)
    }

    /// Adds the answers' direction.
    fn pair(&mut self, record: u32, reverse: &FlowKey) {
        match self.connections.find(self.connections.hash(reverse), reverse).map(Handle::record) {
            None => self.connections.pair(record, reverse),
            Some(other) if other == record => {}
            // Of a connection whose ENI has left its port the answers are due to nobody.
            Some(other) if self.judge(other).0 == Step::Drop(DropReason::NoEni) => {
                self.end(other);
                self.connections.pair(record, reverse);
            }
            Some(_) => self.connections.unpair(record),
        }
    }

    /// Judges a connection by the newest snapshot; whether it still stands.
    fn refresh(&mut self, record: u32) -> bool {
        let (step, judgement) = self.judge(record);
        if step != Step::Continue {
            self.end(record);
            return false;
        }
        let moved = judgement.forward.eni != self.connections.get(record).peer_eni();
        self.install(record, &judgement);
        if moved {
            self.own(record);
        }
        true
    }

    fn install(&mut self, record: u32, judgement: &Judgement<'_>) {
        let verdict = self.verdicts.intern(&judgement.hits);
        let stamp = self.stamp;
        let connection = self.connections.get_mut(record);
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

    fn forward(&mut self, mut frame: Frame, parsed: &Parsed, handle: Handle, tag: Tag) {
        let flow = &mut self.connections.get_mut(handle.record()).flows[handle.dir()];
        let (port, mac, verdict) = (flow.port, flow.mac, flow.verdict);
        if ip_size(&frame, &parsed.headers) > self.shared.config.ports[port as usize].mtu {
            return self.drop(frame, DropReason::EgressMtuExceeded, tag, false);
        }
        flow.frames = flow.frames.saturating_add(1);
        self.verdicts.count(verdict, frame.wire());
        frame.data_mut()[..6].copy_from_slice(&mac);
        self.give_back(frame, port, tag);
    }

    fn give_back(&mut self, frame: Frame, port: u16, tag: Tag) {
        self.ledger.left.returned += frame.wire();
        self.push(ToWorker::Transmit { frame, port, tag });
    }

    fn send(&mut self, message: ToWorker) {
        if let ToWorker::Again { frame, .. } = &message {
            self.ledger.left.returned += frame.wire();
        }
        self.push(message);
    }

    /// There is room: [`poll`](Self::poll) takes no frame without it.
    fn push(&mut self, message: ToWorker) {
        if let Err(rtrb::PushError::Full(ToWorker::Transmit { frame, .. } | ToWorker::Again { frame, .. })) =
            self.to_worker.push(message)
        {
            frame.release();
        }
    }

    /// Offers a connection to the device, where its tables may have come to decide it.
    fn offer(&mut self, record: u32) {
        let connection = self.connections.get(record);
        let frames = connection.flows[0].frames.saturating_add(connection.flows[1].frames);
        // The record's generation field holds the epoch of the last offer.
        let fresh = connection.cold.generation != self.epoch as u16;
        if !fresh && !frames.is_multiple_of(OFFER_EVERY) {
            return;
        }
        let key = connection.flows[0].key;
        let (step, judgement) = program::judge(&self.snapshot.device, &key, connection.cold.port, None);
        let hits = self.verdicts.hits(connection.flows[0].verdict);
        let decided = step == Step::Continue && judgement.hits == hits;
        if decided && self.snapshot.flows.reserve(self.now) {
            let state = self.connections.get(record).state();
            let generation = self.snapshot.generation.0;
            self.send(ToWorker::Promote(Box::new(Promotion { state, generation })));
            self.remove(record);
        } else {
            self.connections.get_mut(record).cold.generation = self.epoch as u16;
        }
    }

    fn adopt(&mut self, state: &State) {
        if self.connections.len() >= self.shared.config.max_connections {
            return self.send(ToWorker::Gone(state.key));
        }
        match self.connections.find(self.connections.hash(&state.key), &state.key) {
            None => {}
            Some(handle) if handle.dir() == 0 => return,
            // Both ends had opened it, and it is here as the other's.
            Some(_) => return self.send(ToWorker::Gone(state.key)),
        }
        let record = self.connections.insert(&state.key, state.port, self.now_ms);
        let connection = self.connections.get_mut(record);
        connection.cold.track = state.track;
        connection.cold.opened = state.opened;
        connection.flows[0].frames = state.frames;
        let reverse = state.key.reversed(state.forward.eni);
        self.pair(record, &reverse);
    }

    /// Ends a connection and tells the worker.
    fn end(&mut self, record: u32) {
        let key = self.connections.get(record).flows[0].key;
        self.remove(record);
        self.send(ToWorker::Gone(key));
    }

    fn remove(&mut self, record: u32) {
        let verdict = self.connections.get(record).flows[0].verdict;
        if verdict != NO_VERDICT {
            self.verdicts.release(verdict);
        }
        self.connections.remove(record);
    }

    fn error_source(&self, frame: &Frame, parsed: &Parsed) -> Step {
        let (source, _) = addresses(frame.data(), &parsed.headers);
        match program::eni_of(&self.snapshot.host, frame.meta().port, frame.meta().eni) {
            Ok(eni) => program::error_source(&self.snapshot.host, eni, source),
            Err(_) => Step::Drop(DropReason::NoEni),
        }
    }

    fn neighbor(&mut self, mut frame: Frame, parsed: &Parsed, tag: Tag) {
        let port = frame.meta().port;
        let snapshot = self.snapshot.clone();
        let Ok(eni) = program::eni_of(&snapshot.host, port, frame.meta().eni) else {
            return self.drop(frame, DropReason::NoEni, tag, false);
        };
        let before = frame.wire();
        match program::respond(&snapshot.host, eni, &mut frame, &parsed.headers) {
            Response::Answered => {
                let (consumed, created) = answered(parsed.headers.class);
                self.ledger.consume(consumed, before);
                self.ledger.create(created, frame.wire());
                self.give_back(frame, port, tag);
            }
            Response::Ignored(why) => {
                self.ledger.consume(why, before);
                frame.release();
                self.send(ToWorker::Ended { tag });
            }
            Response::Drop(why) => self.drop(frame, why, tag, false),
            Response::Punt(_) => self.drop(frame, DropReason::NoEni, tag, false),
        }
    }

    /// Drops a frame; `marked`: it was the first of its connection, whose marker ends with it.
    fn drop(&mut self, mut frame: Frame, reason: DropReason, tag: Tag, marked: bool) {
        self.ledger.drop(reason, frame.wire());
        if marked && let Ok(parsed) = parsed::look(&mut frame, &self.snapshot.host) {
            self.send(ToWorker::Gone(parsed.key));
        }
        frame.release();
        self.send(ToWorker::Ended { tag });
    }

    /// Ends what was idle for too long.
    fn sweep(&mut self) {
        let records = self.connections.capacity();
        let elapsed = self.now_ms.wrapping_sub(self.swept_ms).min(SWEEP_MS);
        let budget = (u64::from(records) * u64::from(elapsed) / u64::from(SWEEP_MS)) as u32;
        if budget == 0 {
            return;
        }
        self.swept_ms = self.now_ms;
        for _ in 0..budget {
            if self.to_worker.slots() < MESSAGES {
                break;
            }
            self.sweep = if self.sweep + 1 < records { self.sweep + 1 } else { 0 };
            let connection = self.connections.get(self.sweep);
            if !connection.cold.used {
                continue;
            }
            let limit = conntrack::idle_limit_ms(&connection.cold.track, connection.flows[0].key.proto);
            if self.now_ms.wrapping_sub(connection.seen()) > limit {
                self.end(self.sweep);
            } else if connection.flows[0].stamp != self.stamp {
                self.refresh(self.sweep);
            }
        }
    }

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
                        &self.snapshot,
                        self.now_ms,
                        &self.shared.config.ports,
                        |c| c.cold.tier == Tier::Host,
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

    /// What this thread has to tell.
    pub fn report(&self) -> ThreadReport {
        ThreadReport {
            name: self.board().name.clone(),
            ledger: self.ledger.clone(),
            ports: Vec::new(),
            hits: self.verdicts.totals(),
            flow_hits: 0,
            device: 0,
            pending: 0,
            host: self.connections.len() as u64,
            cpu_ns: report::thread_cpu_ns(),
        }
    }

    fn inspect(&mut self, mut inspection: Box<Inspection>) {
        inspection.at_host_path(&self.snapshot, &self.connections);
        if inspection.probe {
            let count = inspection.count();
            self.ledger.create(CreateReason::Probe, count);
            self.ledger.consume(ConsumeReason::Probe, count);
            self.verdicts.count_once(&inspection.hits, count);
        }
        inspection.answer(&self.shared.config.ports);
    }
}

/// Whether a frame punted for this reason may open a connection here. The others belong to one that the host path owned when they
/// were punted.
fn is_first(reason: PuntReason) -> bool {
    !matches!(reason, PuntReason::HostOwned | PuntReason::Pending)
}
