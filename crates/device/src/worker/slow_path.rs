//! Packets without a connection on record: judged, answered, punted.

use super::*;

impl Worker {
    /// A packet of no connection.
    pub(super) fn first(&mut self, frame: Frame, parsed: &Parsed) {
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
        self.owned += 1;
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
    pub(super) fn stray_error(&mut self, frame: Frame, parsed: &Parsed) {
        let (source, _) = addresses(frame.data(), &parsed.headers);
        match self.error_source(&frame, source) {
            Step::Continue => self.drop(frame, DropReason::IcmpErrorNoConnection),
            Step::Drop(reason) => self.drop(frame, reason),
            Step::Punt(reason) => self.punt_or_drop(frame, reason, NO_TAG),
        }
    }

    pub(super) fn error_source(&self, frame: &Frame, source: u128) -> Step {
        let view = &self.snapshot.device;
        match program::eni_of(view, frame.meta().port, frame.meta().eni) {
            Ok(eni) => program::error_source(view, eni, source),
            Err(step) => step,
        }
    }

    pub(super) fn neighbor(&mut self, mut frame: Frame, parsed: &Parsed) {
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
    pub(super) fn punt_first(&mut self, frame: Frame, key: &FlowKey, reason: PuntReason) {
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

    pub(super) fn punt_or_drop(&mut self, frame: Frame, reason: PuntReason, tag: Tag) {
        if self.shared.config.miss_policy == MissPolicy::Drop && reason != PuntReason::NotArmed {
            return self.drop(frame, DropReason::MissPolicyDrop);
        }
        self.punt(frame, reason, tag);
    }

    pub(super) fn punt(&mut self, frame: Frame, reason: PuntReason, tag: Tag) {
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

    pub(super) fn again(&mut self, frame: Frame, parsed: &Parsed) {
        if parsed.kind == Kind::Error { self.stray_error(frame, parsed) } else { self.first(frame, parsed) }
    }
}
