//! Who decides a connection: the worker's side of the device, pending and host tiers.

use super::*;

impl Worker {
    pub(super) fn take_returned(&mut self) -> bool {
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
                ToWorker::Again { mut frame, tag } => {
                    self.landed(tag);
                    let once_more = frame.meta().flags & Meta::HOST != 0;
                    frame.meta_mut().flags |= Meta::HOST;
                    if self.batch.push(frame).is_ok() {
                        self.batch(Origin::Again { once_more });
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

    /// Judges a connection again that was judged by an older snapshot, or says who decides it.
    pub(super) fn refresh(&mut self, handle: Handle, origin: Origin) -> Refreshed {
        let record = handle.record();
        let connection = self.connections.get_mut(record);
        // Under the reset policy `deny` nothing of an ENI that is not armed goes to the host path either.
        let admitted = self.snapshot.device.admits(connection.flows[handle.dir()].key.eni);
        if let (Tier::Host, Step::Drop(reason)) = (connection.cold.tier, admitted) {
            return Refreshed::Drop(reason);
        }
        let cold = &mut connection.cold;
        match cold.tier {
            // The host path has disowned it: a packet may only open it anew. Else two of them could keep a marker, which
            // stays while one is under way, alive for ever.
            Tier::Host if cold.ended => return Refreshed::Punt(PuntReason::TableMiss),
            // Nor does it know this one; but it may have been given to it after the packet went there.
            Tier::Host if matches!(origin, Origin::Again { once_more } if once_more || !cold.adopted) => {
                // Or knows it, and its answers as those of another one.
                if handle.dir() == 1 {
                    self.connections.unpair(record);
                    return Refreshed::Gone;
                }
                return if self.forget(record) {
                    Refreshed::Gone
                } else {
                    Refreshed::Punt(PuntReason::TableMiss)
                };
            }
            Tier::Host => return Refreshed::Punt(PuntReason::HostOwned),
            Tier::Pending if cold.in_flight > 0 && !matches!(origin, Origin::Again { .. }) => {
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
            Step::Punt(reason) => return self.handed(record, reason),
        }
        let generation = self.snapshot.generation.0 as u16;
        if self.connections.get(record).cold.generation != generation {
            if !self.snapshot.flows.reserve(self.now) {
                return self.handed(record, PuntReason::FlowTableFull);
            }
            self.device_tier += 1;
            self.connections.get_mut(record).cold.generation = generation;
        }
        self.install(record, &judgement);
        Refreshed::Good
    }

    pub(super) fn judge(&self, record: u32) -> (Step, Judgement<'static>) {
        let connection = self.connections.get(record);
        let (key, port) = (&connection.flows[0].key, connection.cold.port);
        program::judge_again(&self.snapshot.device, &self.snapshot.host, key, port, None)
    }

    /// Writes a verdict into both directions.
    pub(super) fn install(&mut self, record: u32, judgement: &Judgement<'_>) {
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

    /// Adds the answers' direction.
    pub(super) fn pair(&mut self, record: u32, reverse: &FlowKey) {
        match self.connections.find(self.connections.hash(reverse), reverse).map(Handle::record) {
            None => self.connections.pair(record, reverse),
            Some(other) if other == record => {}
            // Of a connection whose ENI has left its port the answers are due to nobody.
            Some(other) if self.judge(other).0 == Step::Drop(DropReason::NoEni) && self.forget(other) => {
                self.connections.pair(record, reverse);
            }
            Some(_) => self.connections.unpair(record),
        }
    }

    fn handed(&mut self, record: u32, reason: PuntReason) -> Refreshed {
        match self.surrender(record, reason) {
            Ok(()) => Refreshed::Punt(reason),
            Err(refusal) => Refreshed::Drop(refusal),
        }
    }

    /// Gives a connection that the device cannot decide any more to the host path, or says why its packet is dropped.
    pub(super) fn surrender(&mut self, record: u32, reason: PuntReason) -> Result<(), DropReason> {
        if self.shared.config.miss_policy == MissPolicy::Drop && reason != PuntReason::NotArmed {
            return Err(DropReason::MissPolicyDrop);
        }
        if self.to_host.slots() < 2 {
            return Err(DropReason::HostPathOverCapacity);
        }
        self.adopt(record);
        Ok(())
    }

    /// Gives a connection to the host path; the record stays as a marker.
    pub(super) fn adopt(&mut self, record: u32) {
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
    pub(super) fn leave_device(&mut self, record: u32) {
        let connection = self.connections.get(record);
        let (cold, verdict) = (connection.cold, connection.flows[0].verdict);
        if cold.tier == Tier::Pending {
            self.pending -= 1;
        }
        if cold.tier != Tier::Host {
            self.owned -= 1;
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
    pub(super) fn forget(&mut self, record: u32) -> bool {
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
    pub(super) fn mark(&mut self, record: u32) {
        let connection = self.connections.get_mut(record);
        connection.cold.tier = Tier::Host;
        for flow in &mut connection.flows {
            flow.stamp = 0;
            flow.verdict = NO_VERDICT;
        }
    }

    /// A punted frame has come back.
    pub(super) fn landed(&mut self, tag: Tag) {
        if tag == NO_TAG {
            return;
        }
        let cold = &mut self.connections.get_mut(tag).cold;
        cold.in_flight -= 1;
        if cold.ended && cold.in_flight == 0 {
            self.forget(tag);
        }
    }

    pub(super) fn own(&mut self, owned: &Owned) {
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

    pub(super) fn gone(&mut self, key: &FlowKey) {
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

    pub(super) fn promote(&mut self, promotion: &Promotion) {
        // The host path may have read a newer snapshot than we have.
        self.renew();
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
        self.owned += 1;
        self.pending += 1;
        self.fill(record, state);
        let cold = &mut self.connections.get_mut(record).cold;
        cold.tier = Tier::Pending;
        cold.ended = false;
        cold.adopted = false;
        cold.generation = promotion.generation as u16;
        self.pair(record, &state.key.reversed(state.forward.eni));
    }

    pub(super) fn fill(&mut self, record: u32, state: &State) {
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
}
