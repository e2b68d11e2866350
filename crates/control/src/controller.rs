//! The controller's state, and what may be asked of it. What drives it on is in `engine`.

use crate::compile::{CompileError, compile};
use crate::keep::{self, Batch, Confirmed, KeepError, REVISIONS, Revision};
use crate::link::Link;
use crate::numbers::{Numbers, Policy};
use crate::plan::{Placement, Plan, View};
use crate::rule::{Moment, RuleState, RuleStatus};
use contract::{DeviceState, EntryHits, EntryId, InstallReason, ResetScope, Version};
use model::Desired;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Store;

/// How patient the controller is. All times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A command without a completion for this long has an unknown outcome.
    pub timeout: u64,
    /// How often state and counters are read.
    pub watch: u64,
    /// How often all entries are read back and compared.
    pub audit: u64,
    /// The first pause after a failure; it doubles with each one in a row.
    pub backoff: u64,
    /// The longest pause.
    pub backoff_max: u64,
    /// How often the device is asked whether a version is settled.
    pub settle_poll: u64,
    /// How often a change is tried before it is refused.
    pub attempts: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            timeout: 5_000_000_000,
            watch: 1_000_000_000,
            audit: 30_000_000_000,
            backoff: 50_000_000,
            backoff_max: 5_000_000_000,
            settle_poll: 1_000_000,
            attempts: 8,
        }
    }
}

/// A change of the desired state.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// All that is wanted from now on.
    pub desired: Desired,
    /// The text that it was read from; kept with the revision.
    pub text: String,
    /// Who asks for it.
    pub author: String,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is under way.
    Pending,
    /// It is in force, read back from device and host path.
    Confirmed,
    /// It is not in force, nothing of it; what was before holds.
    Refused {
        /// The rule that could not be had.
        rule: String,
        /// Why.
        reason: String,
    },
    /// A later change took its place before it began.
    Superseded,
}

/// Why a change was not accepted. Nothing was touched.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It could not be kept.
    #[error(transparent)]
    Keep(#[from] KeepError),
}

/// A reset that the controller asked for or was told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetReport {
    /// What it reached; absent: the device came back with a new generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ResetScope>,
    /// When it was asked for, or noticed.
    pub impact_start: Moment,
    /// When the safe set was confirmed again and all ENIs were armed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_back: Option<Moment>,
    /// Why there was no reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A desired state that was accepted, compiled for the device's ports. Without a policy it fits no device seen so far.
#[derive(Debug, Clone)]
pub(crate) struct Accepted {
    pub revision: Revision,
    pub policy: Option<Arc<Policy>>,
}

/// What the controller does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No device; not to be greeted before this time.
    Down { until: u64 },
    /// Asking for the device's state, to find a session number above all others.
    Look,
    /// Opening a session.
    Greet,
    /// Reading both sets of tables after a greeting.
    Read,
    /// In step with the device.
    Idle,
    /// Reading both sets of tables from time to time.
    Audit,
    /// Staging what the plan says.
    Stage,
    /// Waiting for the commit.
    Commit,
    /// Waiting until all threads judge by the new version.
    Settle { next: u64, deadline: u64 },
    /// Reading both sets of tables after a commit.
    Verify,
    /// Arming ENIs.
    Arm,
    /// Dropping what was staged.
    Drop(Dropped),
    /// Another controller has taken over.
    Fenced,
}

/// Why a transaction is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It would change nothing.
    Unchanged,
    /// A rule that must be in the device is refused.
    Refused,
    /// The device must give room back first.
    ToShrink,
}

/// Turns desired state into entries of a device, and keeps it so.
///
/// It is a state machine without threads, sockets or clocks: [`apply`](Controller::apply) accepts a change,
/// [`poll`](Controller::poll) makes all progress. Times are nanoseconds of one monotonic clock, the caller's.
#[derive(Debug)]
pub struct Controller<S> {
    pub(crate) store: S,
    pub(crate) options: Options,
    pub(crate) numbers: Numbers,
    /// The monotonic and the wall clock when the controller started.
    clock: (u64, u64),
    pub(crate) ports: Vec<String>,
    pub(crate) current: Option<Accepted>,
    pub(crate) active: Option<Accepted>,
    pub(crate) next: Option<Accepted>,
    pub(crate) attempts: u32,
    verdicts: BTreeMap<u64, Verdict>,
    pub(crate) statuses: BTreeMap<String, RuleStatus>,
    /// Rules that were refused and are not in force.
    pub(crate) refused: BTreeMap<String, RuleStatus>,
    pub(crate) placement: BTreeMap<EntryId, Placement>,
    pub(crate) hits: BTreeMap<EntryId, EntryHits>,
    pub(crate) host: View,
    pub(crate) device: View,
    pub(crate) known: bool,
    pub(crate) remembered: Option<Confirmed>,
    pub(crate) state: Option<DeviceState>,
    pub(crate) limits: BTreeMap<String, u64>,
    pub(crate) version: Version,
    pub(crate) phase: Phase,
    pub(crate) plan: Option<Plan>,
    pub(crate) link: Link,
    pub(crate) dump: (BTreeMap<EntryId, contract::Entry>, BTreeMap<EntryId, contract::Entry>),
    pub(crate) dirty: bool,
    pub(crate) grow: bool,
    pub(crate) grows_left: u32,
    /// The present transaction takes room from the policy in force, for the active change.
    pub(crate) shrinking: bool,
    /// That was done for the active change.
    pub(crate) shrunk: bool,
    /// This controller has opened a session in its life.
    pub(crate) greeted: bool,
    pub(crate) failures: u32,
    pub(crate) not_before: u64,
    pub(crate) next_watch: u64,
    pub(crate) next_audit: u64,
    pub(crate) strikes: BTreeMap<EntryId, u32>,
    pub(crate) distrusted: BTreeMap<EntryId, InstallReason>,
    pub(crate) wanted_reset: Option<ResetScope>,
    pub(crate) last_reset: Option<ResetReport>,
    pub(crate) last_error: Option<String>,
    pub(crate) proofs: crate::prove::Proofs,
}

impl<S: Store> Controller<S> {
    /// A controller that goes on from what the store holds. `now` is the monotonic clock, `wall_ns` the time since 1970-01-01 UTC.
    ///
    /// # Errors
    /// [`KeepError`] if the store cannot be read.
    pub fn open(store: S, options: Options, now: u64, wall_ns: u64) -> Result<Controller<S>, KeepError> {
        let numbers = keep::read_numbers(&store)?;
        let current = keep::read::<Revision>(&store, "desired/current")?;
        let next = keep::read::<Revision>(&store, "desired/next")?;
        let ports = keep::read(&store, "ports")?.unwrap_or_default();
        let remembered = keep::read(&store, "confirmed")?;
        let accepted = |revision| Accepted { revision, policy: None };
        let mut controller = Controller {
            store,
            options,
            numbers,
            clock: (now, wall_ns),
            ports,
            current: current.map(accepted),
            active: None,
            next: next.map(accepted),
            attempts: 0,
            verdicts: BTreeMap::new(),
            statuses: BTreeMap::new(),
            refused: BTreeMap::new(),
            placement: BTreeMap::new(),
            hits: BTreeMap::new(),
            host: View::default(),
            device: View::default(),
            known: false,
            remembered,
            state: None,
            limits: BTreeMap::new(),
            version: Version(0),
            phase: Phase::Down { until: now },
            plan: None,
            link: Link::default(),
            dump: Default::default(),
            dirty: false,
            grow: false,
            grows_left: 0,
            shrinking: false,
            shrunk: false,
            greeted: false,
            failures: 0,
            not_before: now,
            next_watch: now,
            next_audit: now,
            strikes: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            wanted_reset: None,
            last_reset: None,
            last_error: None,
            proofs: Default::default(),
        };
        controller.recompile(now);
        for (revision, verdict) in
            [(controller.current.as_ref(), Verdict::Confirmed), (controller.next.as_ref(), Verdict::Pending)]
                .into_iter()
                .filter_map(|(a, v)| Some((a?.revision.revision, v)))
                .collect::<Vec<_>>()
        {
            controller.verdicts.insert(revision, verdict);
        }
        Ok(controller)
    }

    /// Accepts a change. It is kept before this returns; [`verdict`](Controller::verdict) says what became of it. A change that has
    /// not begun is replaced by a later one.
    ///
    /// # Errors
    /// [`ApplyError`]; then nothing has changed.
    pub fn apply(&mut self, submission: Submission, now: u64) -> Result<u64, ApplyError> {
        let ports = self.ports_for(&submission.desired);
        let mut numbers = self.numbers.clone();
        let compiled = compile(&submission.desired, &ports, &mut numbers)?;
        numbers.counters.revision += 1;
        let revision = Revision {
            revision: numbers.counters.revision,
            author: submission.author,
            text: submission.text,
            wall_ns: self.moment(now).wall_ns,
            desired: submission.desired,
        };
        let policy = Arc::new(numbers.policy(compiled, revision.revision)?);
        let mut batch = Batch::default();
        batch.numbers(&numbers)?;
        batch.put("desired/next", &revision)?;
        batch.write(&mut self.store)?;
        numbers.dirty.clear();
        self.numbers = numbers;
        self.request(&policy, now);
        self.refused.clear();
        self.distrusted.clear();
        self.strikes.clear();
        self.set_verdict(revision.revision, Verdict::Pending);
        let number = revision.revision;
        let replaced = self.next.replace(Accepted { revision, policy: Some(policy) });
        if let Some(replaced) = replaced {
            self.set_verdict(replaced.revision.revision, Verdict::Superseded);
        }
        Ok(number)
    }

    /// What became of a change; `None` for a revision that is not remembered.
    pub fn verdict(&self, revision: u64) -> Option<&Verdict> {
        self.verdicts.get(&revision)
    }

    /// Asks for a reset of a part of the device.
    pub fn reset(&mut self, scope: ResetScope) {
        self.wanted_reset = Some(scope);
    }

    /// The last reset.
    pub fn last_reset(&self) -> Option<&ResetReport> {
        self.last_reset.as_ref()
    }

    /// Whether everything that was asked for is done and read back, and all ENIs are armed.
    pub fn is_settled(&self) -> bool {
        self.phase == Phase::Idle
            && self.next.is_none()
            && self.active.is_none()
            && !self.dirty
            && !self.grow
            && self.wanted_reset.is_none()
            && !self.link.has(|p| p != crate::link::Purpose::Watch)
    }

    /// Whether another controller has taken over: this one does not write any more.
    pub fn is_fenced(&self) -> bool {
        self.phase == Phase::Fenced
    }

    /// The desired state in force, with its origin.
    pub fn current(&self) -> Option<&Revision> {
        self.current.as_ref().map(|a| &a.revision)
    }

    /// The moment of a monotonic time.
    pub(crate) fn moment(&self, now: u64) -> Moment {
        let uptime_ns = now.saturating_sub(self.clock.0);
        Moment { uptime_ns, wall_ns: self.clock.1.saturating_add(uptime_ns) }
    }

    /// What is to be brought into force, or kept there.
    pub(crate) fn target(&self) -> Option<&Accepted> {
        self.active.as_ref().or(self.next.as_ref()).or(self.current.as_ref())
    }

    /// The policy in force.
    pub(crate) fn in_force(&self) -> Option<&Arc<Policy>> {
        self.current.as_ref().and_then(|a| a.policy.as_ref())
    }

    pub(crate) fn policy(&self) -> Option<&Arc<Policy>> {
        self.target().and_then(|a| a.policy.as_ref())
    }

    pub(crate) fn name(&self, number: u32) -> Option<String> {
        let mut rules = self.numbers.rules.iter();
        rules.find(|(_, r)| r.number == number).map(|(name, _)| name.clone())
    }

    pub(crate) fn set_verdict(&mut self, revision: u64, verdict: Verdict) {
        self.verdicts.insert(revision, verdict);
        while self.verdicts.len() as u64 > 2 * REVISIONS {
            self.verdicts.pop_first();
        }
    }

    /// Ports by index: the device's, or those of the configuration until a device was seen.
    pub(crate) fn ports_for(&self, desired: &Desired) -> Vec<String> {
        if self.ports.is_empty() {
            desired.ports.iter().map(|p| p.name.clone()).collect()
        } else {
            self.ports.clone()
        }
    }

    /// Compiles all desired states again, for other ports or with other numbers.
    pub(crate) fn recompile(&mut self, now: u64) {
        let mut slots = [self.current.take(), self.active.take(), self.next.take()];
        for accepted in slots.iter_mut().flatten() {
            let ports = self.ports_for(&accepted.revision.desired);
            let compiled = compile(&accepted.revision.desired, &ports, &mut self.numbers);
            let policy = compiled.and_then(|c| self.numbers.policy(c, accepted.revision.revision));
            accepted.policy = match policy {
                Ok(policy) => Some(Arc::new(policy)),
                Err(error) => {
                    self.last_error = Some(error.to_string());
                    None
                }
            };
        }
        [self.current, self.active, self.next] = slots;
        if let Some(policy) = self.policy().cloned() {
            self.request(&policy, now);
        }
    }

    /// Notes that the rules of a policy are wanted, where they are new or have changed.
    fn request(&mut self, policy: &Policy, now: u64) {
        let at = self.moment(now);
        for (name, rule) in &policy.rules {
            let status = self.statuses.entry(name.clone()).or_insert_with(|| RuleStatus::new(rule, at));
            status.reference = rule.reference;
            if status.entries != rule.entries {
                status.entries = rule.entries.clone();
                status.set(RuleState::Requested, Some(format!("revision {}", rule.reference.revision)), at);
            }
            if status.state() == RuleState::Requested {
                status.set(RuleState::Validated, None, at);
            }
        }
    }
}
