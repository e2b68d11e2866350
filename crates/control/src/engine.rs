//! What drives the controller on: greet, read, plan, commit, settle, verify, arm, watch; and start over whenever an outcome is
//! unknown.

use crate::controller::{Controller, Phase, ResetReport};
use crate::keep::{Batch, KeepError};
use crate::link::{Answer, Purpose};
use crate::rule::{RuleState, reason_text};
use contract::{
    Command, Completion, Device, DeviceState, Entry, EntryHits, EntryId, InstallReason, Reply, ResetScope,
    Session, SubmitError, Target,
};
use std::collections::{BTreeMap, BTreeSet};
use store::Store;

/// Entries or counters asked for at once.
const PAGE: u32 = 512;
/// Transactions that may follow a change to use the room that it gave back.
const GROWS: u32 = 3;
/// After so many commits that an entry did not survive, the device is not trusted with it.
const STRIKES: u32 = 2;

impl<S: Store> Controller<S> {
    /// Makes all progress that is possible now.
    ///
    /// # Errors
    /// [`SubmitError::Gone`] if the device is lost; the next call greets the device that it is given from the start.
    pub fn poll<D: Device + ?Sized>(&mut self, device: &mut D, now: u64) -> Result<(), SubmitError> {
        if let Err(gone) = self.drive(device, now) {
            self.start_over("device_gone", &gone.to_string(), now);
            return Err(gone);
        }
        Ok(())
    }

    fn drive<D: Device + ?Sized>(&mut self, device: &mut D, now: u64) -> Result<(), SubmitError> {
        loop {
            let mut progress = false;
            while let Some(completion) = device.poll()? {
                self.complete(completion, now);
                progress = true;
            }
            self.expire(now);
            if self.phase == Phase::Look && self.limits.is_empty() {
                let tables = device.capabilities().tables.iter();
                self.limits = tables.filter_map(|t| Some((t.name.clone(), t.limit?))).collect();
            }
            progress |= self.advance(now);
            progress |= self.link.submit(device, now, self.options.timeout)?;
            if !progress {
                return Ok(());
            }
        }
    }

    /// Takes the next step if nothing that the present phase waits for is on its way.
    fn advance(&mut self, now: u64) -> bool {
        if !self.link.is_clear() {
            return false;
        }
        let before = self.phase;
        match self.phase {
            Phase::Down { until } if now >= until => {
                self.phase = Phase::Look;
                self.limits.clear();
                self.link.push(Purpose::Phase, Command::State);
            }
            Phase::Look => self.greet(),
            Phase::Greet => {
                self.phase = Phase::Read;
                self.read_tables();
            }
            Phase::Read => self.read(now),
            Phase::Audit => self.audited(now),
            Phase::Idle => return self.idle(now),
            Phase::Stage => self.stage(now),
            Phase::Settle { next, deadline } => return self.settle(next, deadline, now),
            Phase::Verify => self.verify(now),
            Phase::Arm => self.armed(now),
            Phase::Drop(why) => self.dropped(why, now),
            Phase::Down { .. } | Phase::Commit | Phase::Fenced => {}
        }
        self.phase != before || !self.link.is_clear()
    }

    fn complete(&mut self, completion: Completion, now: u64) {
        let generation = self.state.as_ref().map(|s| s.generation);
        let newer = generation.is_some_and(|g| completion.generation > g);
        if let (0, Ok(Reply::Reset(scope))) = (completion.id.0, &completion.outcome) {
            // A notice that comes after the greeting told of that generation says nothing new.
            if newer {
                self.was_reset(Some(*scope), now);
            }
            return;
        }
        let Some(answer) = self.link.take(completion) else {
            return;
        };
        let greeting = matches!(self.phase, Phase::Down { .. } | Phase::Look | Phase::Greet);
        match (answer.purpose, &answer.outcome) {
            (Purpose::Reset, Ok(_)) => {
                let scope = match answer.command {
                    Command::Reset(scope) => Some(scope),
                    _ => None,
                };
                self.was_reset(scope, now);
            }
            (Purpose::Reset, Err(reason)) => {
                if let Some(reset) = &mut self.last_reset {
                    reset.error = Some(reason.to_string());
                }
            }
            _ if newer && !greeting => self.was_reset(None, now),
            (Purpose::Phase, _) => self.phase_answer(answer, now),
            (Purpose::Watch, _) => self.watch_answer(answer, now),
            (Purpose::Probe(proof), _) => self.probed(proof, answer, now),
        }
    }

    fn phase_answer(&mut self, answer: Answer, now: u64) {
        let Answer { command, outcome, .. } = answer;
        match (command, outcome) {
            (Command::Stage(op), outcome) => {
                if let (Some(plan), Phase::Stage) = (&mut self.plan, self.phase) {
                    match outcome {
                        Err(reason @ InstallReason::StaleGeneration { .. }) => self.stumble(&reason, now),
                        outcome => plan.done(&op, outcome.map(|_| ())),
                    }
                }
            }
            (Command::State, Ok(Reply::State(state))) => self.seen(state, now),
            (Command::State, Err(_)) if self.phase == Phase::Look => {}
            (Command::Hello { .. }, Ok(Reply::State(state))) => {
                self.version = state.version;
                self.state = Some(state);
                self.greeted = true;
            }
            (Command::Dump { target, .. }, Ok(Reply::Entries { entries, next })) => {
                let side = match target {
                    Target::Host => &mut self.dump.0,
                    Target::Device => &mut self.dump.1,
                };
                side.extend(entries.into_iter().map(|d| (d.entry.id, d.entry)));
                if let Some(from) = next {
                    self.link.push(Purpose::Phase, Command::Dump { target, from, limit: PAGE });
                }
            }
            (Command::Hello { session }, Err(reason)) => {
                // A device that tells nothing of itself before the greeting: look for its session in strides.
                let counters = &mut self.numbers.counters;
                counters.session = session.0.saturating_mul(2);
                self.stumble(&reason, now);
            }
            (Command::Commit { version }, Ok(_)) => self.committed(version, now),
            (Command::Arm { enis }, Ok(_)) => {
                if let Some(state) = &mut self.state {
                    state.armed.extend(enis);
                }
            }
            (Command::Abort, _) => {}
            (command, Err(reason)) => {
                let what = format!("{command:?}");
                self.last_error = Some(format!("{}: {reason}", what.split([' ', '(']).next().unwrap_or("")));
                self.stumble(&reason, now);
            }
            (_, Ok(_)) => self.stumble(&InstallReason::FirmwareRejected, now),
        }
    }

    fn watch_answer(&mut self, answer: Answer, now: u64) {
        match answer.outcome {
            Ok(Reply::State(state)) => self.seen(state, now),
            Ok(Reply::Hits { hits, next }) => {
                for hit in hits {
                    self.count(hit);
                }
                match next {
                    Some(from) => self.link.push(Purpose::Watch, Command::Hits { from, limit: PAGE }),
                    None => self.proven_by_traffic(now),
                }
            }
            Ok(_) => {}
            Err(reason) => self.last_error = Some(format!("watch: {reason}")),
        }
    }

    /// Counters that went down belong to a device that started anew: what was counted before is kept.
    fn count(&mut self, new: EntryHits) {
        let Some(old) = self.hits.insert(new.entry, new) else {
            return;
        };
        if new.device >= old.device && new.host >= old.host {
            return;
        }
        let owner = self.in_force().cloned().and_then(|p| {
            let number = p.entries.get(&new.entry)?.rule.rule;
            p.name(number).map(str::to_owned)
        });
        if let Some(status) = owner.and_then(|name| self.statuses.get_mut(&name)) {
            status.retired.0 += old.device;
            status.retired.1 += old.host;
            status.proof_base = None;
        }
    }

    fn proven_by_traffic(&mut self, now: u64) {
        let Some(policy) = self.in_force().cloned() else {
            return;
        };
        let at = self.moment(now);
        for (name, rule) in &policy.rules {
            let Some(status) = self.statuses.get(name).filter(|s| s.state() == RuleState::Confirmed) else {
                continue;
            };
            let hits = self.rule_hits(status, &rule.entries).0;
            let Some(status) = self.statuses.get_mut(name) else {
                continue;
            };
            match status.proof_base {
                Some(base) if hits > base => status.set(RuleState::Proven, None, at),
                Some(_) => {}
                None => status.proof_base = Some(hits),
            }
        }
    }

    fn seen(&mut self, state: DeviceState, now: u64) {
        let session = Session(self.numbers.counters.session);
        let greeting = matches!(self.phase, Phase::Look | Phase::Down { .. });
        let generation = self.state.as_ref().map(|s| s.generation);
        if (!greeting || self.greeted) && state.session > session {
            self.last_error =
                Some(format!("session {} has taken over; this controller stops", state.session));
            self.doubt("fenced", now);
            self.link.clear();
            self.plan = None;
            self.phase = Phase::Fenced;
        } else if !greeting && generation.is_some_and(|g| g != state.generation) {
            self.was_reset(None, now);
        } else if self.phase == Phase::Idle && state.version != self.version {
            self.last_error =
                Some(format!("the device is at version {}, not {}", state.version, self.version));
            self.stumble(&InstallReason::StaleGeneration { current: state.generation }, now);
        } else {
            self.state = Some(state);
        }
    }

    /// A session above all that the device and the store know of.
    fn greet(&mut self) {
        let seen = self.state.as_ref().map_or(0, |s| s.session.0);
        let counters = &mut self.numbers.counters;
        counters.session = counters.session.max(seen).saturating_add(1);
        let session = Session(counters.session);
        self.phase = Phase::Greet;
        self.link.push(Purpose::Phase, Command::Hello { session });
        let saved = self.save(Batch::default());
        self.note(saved);
    }

    pub(crate) fn read_tables(&mut self) {
        self.dump = Default::default();
        for target in [Target::Host, Target::Device] {
            self.link.push(Purpose::Phase, Command::Dump { target, from: EntryId(0), limit: PAGE });
        }
    }

    /// Adopts what was read after a greeting.
    fn read(&mut self, now: u64) {
        let (host, device) = std::mem::take(&mut self.dump);
        let state = self.state.clone();
        let remembered = self.remembered.as_ref().filter(|c| {
            state.as_ref().is_some_and(|s| s.generation == c.generation && s.version == c.version)
        });
        self.host.deciding = remembered.map(|c| c.host.iter().copied().collect());
        self.device.deciding = remembered.map(|c| c.device.iter().copied().collect());
        let ports = state.map(|s| s.ports).unwrap_or_default();
        let moved = !ports.is_empty() && ports != self.ports;
        if moved {
            self.ports = ports;
        }
        let foreign = self.has_foreign(&host) || self.has_foreign(&device);
        let highest = host.keys().chain(device.keys()).max().map_or(0, |id| id.0);
        self.numbers.counters.entry = self.numbers.counters.entry.max(highest);
        if foreign {
            self.numbers.rules.values_mut().for_each(|r| r.entries.clear());
        }
        if moved || foreign {
            self.recompile(now);
        }
        self.host.entries = host;
        self.device.entries = device;
        self.known = true;
        self.dirty = true;
        self.grows_left = GROWS;
        self.next_audit = now.saturating_add(self.options.audit);
        self.phase = Phase::Idle;
    }

    /// Whether some id that this controller gave to one entry names another one there: the store is not the one that wrote the tables.
    fn has_foreign(&self, found: &BTreeMap<EntryId, Entry>) -> bool {
        let known = self.numbers.rules.values().flat_map(|r| &r.entries);
        known.into_iter().any(|e| found.get(&e.id).is_some_and(|f| f != e))
    }

    fn audited(&mut self, now: u64) {
        let (host, device) = std::mem::take(&mut self.dump);
        self.next_audit = now.saturating_add(self.options.audit);
        self.phase = Phase::Idle;
        if host != self.host.entries || device != self.device.entries {
            self.differs(host, device, now);
        }
    }

    /// The tables do not hold what they should: take what they hold for true, and repair.
    pub(crate) fn differs(
        &mut self,
        host: BTreeMap<EntryId, Entry>,
        device: BTreeMap<EntryId, Entry>,
        now: u64,
    ) {
        let at = self.moment(now);
        let wrong: BTreeSet<u32> = [(&self.host.entries, &host), (&self.device.entries, &device)]
            .into_iter()
            .flat_map(|(a, b)| a.values().filter(|e| b.get(&e.id) != Some(*e)))
            .map(|e| e.rule.rule)
            .collect();
        for id in self.device.entries.keys().filter(|id| !device.contains_key(id)) {
            let strikes = self.strikes.entry(*id).or_default();
            *strikes += 1;
            if *strikes >= STRIKES {
                self.distrusted.insert(*id, InstallReason::FirmwareRejected);
            }
        }
        for status in self.statuses.values_mut().filter(|s| wrong.contains(&s.reference.rule)) {
            status.set(RuleState::Requested, Some("differs_from_read_back".to_owned()), at);
        }
        self.last_error = Some(format!("{} rules were not as they should be when read back", wrong.len()));
        self.host.entries = host;
        self.device.entries = device;
        self.dirty = true;
        self.back_off(now);
    }

    fn back_off(&mut self, now: u64) {
        let pause = self.options.backoff.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.not_before = now.saturating_add(pause.min(self.options.backoff_max));
    }

    fn idle(&mut self, now: u64) -> bool {
        if let Some(scope) = self.wanted_reset.take() {
            let impact_start = self.moment(now);
            self.last_reset =
                Some(ResetReport { scope: Some(scope), impact_start, device_back: None, error: None });
            self.link.push_first(Purpose::Reset, Command::Reset(scope));
            return true;
        }
        if self.link.has(|p| p == Purpose::Reset) {
            return false;
        }
        if self.active.is_none() && self.next.is_some() {
            self.active = self.next.take();
            self.attempts = 0;
            self.shrunk = false;
            self.grows_left = GROWS;
        }
        if now >= self.not_before && (self.active.is_some() || self.dirty || self.grow) && self.begin() {
            return true;
        }
        if now >= self.next_audit {
            self.phase = Phase::Audit;
            self.read_tables();
            return true;
        }
        if now >= self.next_watch {
            self.next_watch = now.saturating_add(self.options.watch);
            if !self.link.has(|p| p == Purpose::Watch) {
                self.link.push(Purpose::Watch, Command::State);
                self.link.push(Purpose::Watch, Command::Hits { from: EntryId(0), limit: PAGE });
                return true;
            }
        }
        false
    }

    /// The device lost its entries. Everything starts at the greeting.
    fn was_reset(&mut self, scope: Option<ResetScope>, now: u64) {
        let asked = self.last_reset.as_ref().is_some_and(|r| r.device_back.is_none() && r.error.is_none());
        if !asked {
            let impact_start = self.moment(now);
            self.last_reset = Some(ResetReport { scope, impact_start, device_back: None, error: None });
        }
        self.strikes.clear();
        self.distrusted.clear();
        self.failures = 0;
        self.start_over("reset", "", now);
        self.phase = Phase::Down { until: now };
    }

    /// Some outcome is unknown, or the device said what it should not: start over with a fresh session and a fresh dump.
    pub(crate) fn stumble(&mut self, reason: &InstallReason, now: u64) {
        if self.active.is_some() {
            self.attempts += 1;
        }
        let text = reason_text(reason, |n| self.name(n));
        if self.attempts > self.options.attempts {
            self.attempts = 0;
            self.refuse(String::new(), text.clone(), now);
        }
        self.start_over(reason.code(), &text, now);
    }

    fn start_over(&mut self, code: &str, detail: &str, now: u64) {
        if !detail.is_empty() {
            self.last_error = Some(detail.to_owned());
        }
        self.doubt(code, now);
        self.link.clear();
        self.plan = None;
        self.shrinking = false;
        self.known = false;
        self.proofs_failed(code);
        self.back_off(now);
        self.phase = Phase::Down { until: self.not_before };
    }

    /// What was known of rules in the device is no longer sure.
    fn doubt(&mut self, code: &str, now: u64) {
        let at = self.moment(now);
        for status in self.statuses.values_mut().filter(|s| s.is_in_device()) {
            status.set(RuleState::Requested, Some(code.to_owned()), at);
        }
    }

    fn expire(&mut self, now: u64) {
        let expired = self.link.expired(now, self.options.timeout);
        for purpose in &expired {
            if let Purpose::Probe(proof) = purpose {
                self.probe_lost(*proof, now);
            }
        }
        if expired.iter().any(|p| !matches!(p, Purpose::Probe(_))) {
            self.stumble(&InstallReason::Timeout, now);
        }
    }

    /// Writes numbers and these changes.
    pub(crate) fn save(&mut self, mut batch: Batch) -> Result<(), KeepError> {
        batch.numbers(&self.numbers)?;
        batch.write(&mut self.store)?;
        self.numbers.dirty.clear();
        Ok(())
    }

    pub(crate) fn note(&mut self, saved: Result<(), KeepError>) {
        if let Err(error) = saved {
            self.last_error = Some(error.to_string());
        }
    }
}
