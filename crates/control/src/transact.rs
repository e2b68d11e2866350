//! One transaction after the other: plan, stage, commit or drop, settle, read back, arm.

use crate::controller::{Controller, Dropped, Phase, Verdict};
use crate::keep::{Batch, Confirmed, KeepError, REVISIONS};
use crate::link::Purpose;
use crate::numbers::Policy;
use crate::plan::{Plan, View, lacks_room};
use crate::rule::{RuleState, RuleStatus, reason_text};
use contract::schema::vnet;
use contract::{Command, EntryId, InstallReason, TableId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;

impl<S: Store> Controller<S> {
    /// Starts the transaction that leads to the target. False: there is nothing to lead to.
    pub(crate) fn begin(&mut self) -> bool {
        self.dirty = false;
        self.grow = false;
        let Some(policy) = self.policy().cloned() else {
            self.refuse_what_does_not_compile();
            return false;
        };
        let plan = self.plan_for(policy, &self.distrusted);
        self.plan = Some(plan);
        self.phase = Phase::Stage;
        true
    }

    fn refuse_what_does_not_compile(&mut self) {
        if let Some(active) = self.active.take() {
            let reason = self.last_error.clone().unwrap_or_default();
            let verdict = Verdict::Refused { rule: String::new(), reason };
            self.set_verdict(active.revision.revision, verdict);
            self.dirty = true;
        }
    }

    pub(crate) fn stage(&mut self, now: u64) {
        let Some(plan) = &mut self.plan else { return };
        match plan.next(&mut self.numbers) {
            Ok(ops) if ops.is_empty() => self.decide(now),
            Ok(ops) => {
                for op in ops {
                    self.link.push(Purpose::Phase, Command::Stage(op));
                }
            }
            Err(reason) => {
                self.last_error = Some(format!("a change was not taken: {reason}"));
                self.stumble(&reason, now);
            }
        }
    }

    /// The plan is complete: commit it, or drop it.
    fn decide(&mut self, now: u64) {
        let Some(plan) = &self.plan else { return };
        let refused = if self.active.is_some() && !self.shrinking { plan.refused() } else { None };
        let drop = match refused {
            Some((_, reason)) if lacks_room(&reason) && self.may_shrink(plan) => Dropped::ToShrink,
            Some(_) => Dropped::Refused,
            None if plan.changes() => {
                let highest = self.version.0.max(self.numbers.counters.version);
                let version = Version(highest.saturating_add(1));
                self.phase = Phase::Commit;
                self.link.push(Purpose::Phase, Command::Commit { version });
                return self.report_leaving(now);
            }
            None => Dropped::Unchanged,
        };
        self.phase = Phase::Drop(drop);
        if plan.staged() {
            self.link.push(Purpose::Phase, Command::Abort);
        } else {
            self.dropped(drop, now);
        }
    }

    /// From the moment at which the commit may take effect, no rule is said to be in the device that leaves with it.
    fn report_leaving(&mut self, now: u64) {
        let Some(plan) = &self.plan else { return };
        let at = self.moment(now);
        let placement = plan.placement();
        for (name, status) in self.statuses.iter_mut().filter(|(_, s)| s.is_in_device()) {
            let Some(rule) = plan.policy.rules.get(name) else {
                // A later change, still waiting, has it again.
                status.set(RuleState::Validated, None, at);
                continue;
            };
            let out = rule.entries.iter().find_map(|id| placement.get(id).and_then(|p| p.out.clone()));
            if let Some(out) = out {
                let reason = reason_text(&out, |n| plan.policy.name(n).map(str::to_owned));
                status.set(RuleState::Software, Some(reason), at);
            }
        }
    }

    pub(crate) fn dropped(&mut self, drop: Dropped, now: u64) {
        let refused = self.plan.as_ref().and_then(Plan::refused);
        match (drop, refused) {
            (Dropped::ToShrink, Some((_, reason))) => self.shrink(reason),
            (Dropped::Refused, Some((rule, reason))) => {
                let (rule, reason) = (rule.to_owned(), reason_text(&reason, |n| self.name(n)));
                self.refuse(rule, reason, now);
            }
            _ => self.confirm(now),
        }
    }

    /// Whether entries of the policy in force stand where a rule that must be in the device would have room without them.
    fn may_shrink(&self, plan: &Plan) -> bool {
        !self.shrunk && self.in_force().is_some() && plan.gives_way()
    }

    /// The first of the steps shrink, switch, grow: under the policy in force, what the next one does not want leaves the device.
    fn shrink(&mut self, reason: InstallReason) {
        let (Some(old), Some(new)) = (self.in_force().cloned(), self.policy().cloned()) else {
            return;
        };
        let unwanted = old.entries.values().filter(|e| new.entries.get(&e.id) != Some(*e));
        let barred = unwanted.map(|e| (e.id, reason.clone())).collect();
        self.shrunk = true;
        self.shrinking = true;
        self.plan = Some(self.plan_for(old, &barred));
        self.phase = Phase::Stage;
    }

    fn plan_for(&self, policy: Arc<Policy>, barred: &BTreeMap<EntryId, InstallReason>) -> Plan {
        let limits = vnet::PROGRAM.tables.iter();
        let limits: BTreeMap<TableId, u64> =
            limits.filter_map(|t| Some((t.id, *self.limits.get(t.name)?))).collect();
        Plan::new(policy, &self.host, &self.device, limits, &self.placement, barred)
    }

    /// Gives the active change up; what was in force before is the target again.
    pub(crate) fn refuse(&mut self, rule: String, reason: String, now: u64) {
        self.plan = None;
        self.shrunk = false;
        self.phase = Phase::Idle;
        let Some(active) = self.active.take() else { return };
        if let Some(mut status) = self.statuses.get(&rule).cloned() {
            status.set(RuleState::Refused, Some(reason.clone()), self.moment(now));
            self.refused.insert(rule.clone(), status);
        }
        self.set_verdict(active.revision.revision, Verdict::Refused { rule, reason });
        let current = self.current.as_ref().and_then(|a| a.policy.clone());
        let known = |name: &String| current.as_ref().is_some_and(|p| p.rules.contains_key(name));
        self.statuses.retain(|name, _| known(name));
        self.recompile(now);
        self.dirty = true;
        let mut batch = Batch::default();
        if self.next.is_none() {
            batch.remove("desired/next");
        }
        let saved = self.save(batch);
        self.note(saved);
    }

    pub(crate) fn committed(&mut self, version: Version, now: u64) {
        let Some(plan) = &self.plan else { return };
        let (host, device) = plan.views();
        let policy = Arc::clone(&plan.policy);
        let placement = plan.placement();
        if !self.shrinking {
            self.retire(&policy);
        }
        let at = self.moment(now);
        for (name, rule) in &policy.rules {
            let inside = rule.entries.iter().all(|id| placement.get(id).is_some_and(|p| p.out.is_none()));
            if let Some(status) = self.statuses.get_mut(name)
                && inside
                && status.entries == rule.entries
                && status.state() < RuleState::Installed
            {
                status.set(RuleState::Installed, None, at);
            }
        }
        self.host = host;
        self.device = device;
        self.placement = placement;
        self.version = version;
        self.numbers.counters.version = version.0;
        if self.active.is_some() && !self.shrinking {
            self.current = self.active.take();
        }
        let deadline = now.saturating_add(self.options.timeout);
        self.phase = Phase::Settle { next: now, deadline };
    }

    /// Keeps the hits of entries that the new policy no longer has.
    fn retire(&mut self, new: &Policy) {
        let Some(old) = self.current.as_ref().and_then(|a| a.policy.clone()) else {
            return;
        };
        for (name, rule) in &old.rules {
            for id in rule.entries.iter().filter(|id| !new.entries.contains_key(id)) {
                let Some(hits) = self.hits.remove(id) else { continue };
                if let Some(status) = self.statuses.get_mut(name) {
                    status.retired.0 += hits.device;
                    status.retired.1 += hits.host;
                }
            }
        }
    }

    pub(crate) fn settle(&mut self, next: u64, deadline: u64, now: u64) -> bool {
        if self.state.as_ref().is_some_and(|s| s.settled >= self.version) {
            self.phase = Phase::Verify;
            self.read_tables();
        } else if now >= deadline {
            self.stumble(&InstallReason::Timeout, now);
        } else if now >= next {
            let next = now.saturating_add(self.options.settle_poll);
            self.phase = Phase::Settle { next, deadline };
            self.link.push(Purpose::Phase, Command::State);
        } else {
            return false;
        }
        true
    }

    pub(crate) fn verify(&mut self, now: u64) {
        let (host, device) = std::mem::take(&mut self.dump);
        if host == self.host.entries && device == self.device.entries {
            return self.confirm(now);
        }
        self.plan = None;
        self.phase = Phase::Idle;
        self.differs(host, device, now);
    }

    /// What was planned was read back.
    fn confirm(&mut self, now: u64) {
        let Some(plan) = self.plan.take() else { return };
        self.failures = 0;
        self.attempts = 0;
        self.next_audit = now.saturating_add(self.options.audit);
        self.next_watch = now;
        self.placement = plan.placement();
        self.grow = plan.may_grow() && self.grows_left > 0;
        self.grows_left = self.grows_left.saturating_sub(u32::from(self.grow));
        if self.active.is_some() && !self.shrinking {
            // Device and host path held it already.
            self.current = self.active.take();
        }
        self.shrunk = self.shrinking;
        self.shrinking = false;
        let at = self.moment(now);
        for (name, rule) in &plan.policy.rules {
            let out = rule.entries.iter().find_map(|id| self.placement.get(id).and_then(|p| p.out.clone()));
            let reason = out.map(|r| reason_text(&r, |n| plan.policy.name(n).map(str::to_owned)));
            // A status of other entries is about a change that has yet to come.
            let of_this = |s: &&mut RuleStatus| s.entries == rule.entries;
            let Some(status) = self.statuses.get_mut(name).filter(of_this) else { continue };
            match reason {
                Some(reason) if rule.hardware_only => status.set(RuleState::Refused, Some(reason), at),
                Some(reason) => status.set(RuleState::Software, Some(reason), at),
                None if status.state() == RuleState::Proven => {}
                None => status.set(RuleState::Confirmed, None, at),
            }
        }
        if self.next.is_none() && self.active.is_none() {
            self.statuses.retain(|name, _| plan.policy.rules.contains_key(name));
        }
        self.set_verdict(plan.policy.revision, Verdict::Confirmed);
        self.hits.retain(|id, _| plan.policy.entries.contains_key(id));
        let saved = self.keep_confirmed();
        self.note(saved);
        self.arm(&plan.policy.enis);
    }

    fn keep_confirmed(&mut self) -> Result<(), KeepError> {
        let Some(current) = self.current.clone() else {
            return Ok(());
        };
        let others = [&self.active, &self.next].into_iter().flatten();
        let kept: Vec<Arc<Policy>> = others.chain([&current]).filter_map(|a| a.policy.clone()).collect();
        self.numbers.prune(&kept.iter().map(|p| &**p).collect::<Vec<_>>());
        let mut batch = Batch::default();
        batch.put("desired/current", &current.revision)?;
        if self.next.is_none() && self.active.is_none() {
            batch.remove("desired/next");
        }
        batch.put(format!("history/{:020}", current.revision.revision), &current.revision)?;
        if let Some(old) = current.revision.revision.checked_sub(REVISIONS) {
            batch.remove(format!("history/{old:020}"));
        }
        batch.put("ports", &self.ports)?;
        if let Some(state) = &self.state {
            let scopes = |v: &View| v.deciding.iter().flatten().copied().collect();
            let confirmed = Confirmed {
                generation: state.generation,
                version: self.version,
                host: scopes(&self.host),
                device: scopes(&self.device),
            };
            batch.put("confirmed", &confirmed)?;
            self.remembered = Some(confirmed);
        }
        self.save(batch)
    }

    fn arm(&mut self, enis: &BTreeMap<String, u16>) {
        self.phase = Phase::Arm;
        let armed = self.state.as_ref().map_or(&[][..], |s| &s.armed);
        let enis: Vec<u16> = enis.values().filter(|e| !armed.contains(e)).copied().collect();
        if !enis.is_empty() {
            self.link.push(Purpose::Phase, Command::Arm { enis });
        }
    }

    pub(crate) fn armed(&mut self, now: u64) {
        self.phase = Phase::Idle;
        let at = self.moment(now);
        if let Some(reset) = &mut self.last_reset
            && reset.device_back.is_none()
            && reset.error.is_none()
            && self.wanted_reset.is_none()
        {
            reset.device_back = Some(at);
        }
    }
}
