//! What a worker does beside packets: sweeping its connections, answering questions, reporting.

use super::*;

impl Worker {
    /// Ends connections that were idle for too long, and judges the others again after a change: all records once a second.
    pub(super) fn sweep(&mut self) {
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
    pub(super) fn answer(&mut self) {
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
        let device = self.device_tier.saturating_sub(self.pending);
        ThreadReport {
            name: self.board().name.clone(),
            ledger: self.ledger.clone(),
            ports: self.queues.iter().map(|q| q.count.clone()).collect(),
            hits: self.verdicts.totals(),
            flow_hits: self.flow_hits,
            device,
            // Those that a reset took out of the flow table wait for their next packet.
            pending: self.owned - device,
            host: 0,
            cpu_ns: report::thread_cpu_ns(),
        }
    }

    /// Says what becomes of a packet, and counts it if it is a probe.
    pub(super) fn inspect(&mut self, mut inspection: Box<Inspection>) {
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
