//! Proofs: send a rule's witness packets through the device and see who judged them.

use crate::controller::Controller;
use crate::link::{Answer, Purpose};
use crate::rule::RuleState;
use crate::witness::{Witness, witnesses};
use contract::report::{TraceOutcome, TraceReport};
use contract::schema::vnet;
use contract::{Command, EntryId, Probed, Reply};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::Store;

/// Proofs that are remembered.
const REMEMBERED: usize = 64;

/// What a proof found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofReport {
    /// The rule.
    pub rule: String,
    /// Whether a probe was judged by the rule in the device.
    pub proven: bool,
    /// What was seen, and if it was no proof, who judged instead.
    pub detail: String,
    /// Probes that were sent.
    pub probes: usize,
    /// The way of the last probe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceReport>,
}

#[derive(Debug)]
struct Proof {
    entries: BTreeSet<EntryId>,
    denies: bool,
    left: VecDeque<Witness>,
    report: ProofReport,
    done: bool,
}

/// All proofs, under way and done.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    last: u64,
    proofs: BTreeMap<u64, Proof>,
}

impl<S: Store> Controller<S> {
    /// Starts to prove a rule. The ticket is for [`proof`](Controller::proof).
    pub fn prove(&mut self, rule: &str) -> u64 {
        self.proofs.last += 1;
        let ticket = self.proofs.last;
        let proof = self.plan_proof(rule);
        self.proofs.proofs.insert(ticket, proof);
        while self.proofs.proofs.len() > REMEMBERED {
            self.proofs.proofs.pop_first();
        }
        self.next_probe(ticket);
        ticket
    }

    /// What a proof found; `None` while it is under way, and for tickets not remembered.
    pub fn proof(&self, ticket: u64) -> Option<&ProofReport> {
        let proof = self.proofs.proofs.get(&ticket)?;
        proof.done.then_some(&proof.report)
    }

    fn plan_proof(&self, rule: &str) -> Proof {
        let mut proof = Proof {
            entries: BTreeSet::new(),
            denies: false,
            left: VecDeque::new(),
            report: ProofReport {
                rule: rule.to_owned(),
                proven: false,
                detail: String::new(),
                probes: 0,
                trace: None,
            },
            done: false,
        };
        let current = self.current.as_ref().and_then(|a| Some((&a.revision.desired, a.policy.as_ref()?)));
        let found = current.and_then(|(d, p)| Some((d, p, p.rules.get(rule)?)));
        let Some((desired, policy, numbered)) = found else {
            proof.report.detail = "no such rule is in force".to_owned();
            return proof;
        };
        if !self.known {
            proof.report.detail = "the device is not there, or is being read".to_owned();
            return proof;
        }
        let inside = |id: &&EntryId| self.device.entries.contains_key(id);
        proof.entries = numbered.entries.iter().filter(inside).copied().collect();
        if proof.entries.is_empty() {
            let status = self.statuses.get(rule);
            let reason = status.and_then(|s| s.reason()).unwrap_or("it was not installed yet");
            proof.report.detail = format!("no entry of it is in the device: {reason}");
            return proof;
        }
        let actions: BTreeSet<_> = numbered
            .entries
            .iter()
            .filter_map(|id| policy.entries.get(id))
            .map(|e| (e.table, e.action.id))
            .collect();
        proof.denies = actions.iter().all(|(table, action)| match *table {
            vnet::ACL => [vnet::DENY, vnet::DENY_TERMINATING].contains(action),
            vnet::ROUTE => *action == vnet::BLACKHOLE,
            _ => false,
        });
        proof.left = witnesses(desired, &self.ports, policy, rule).into();
        if proof.left.is_empty() {
            proof.report.detail =
                "no packet of this device's ENIs can meet it: rules before it take all that it matches, or no ENI uses it".to_owned();
        }
        proof
    }

    fn next_probe(&mut self, ticket: u64) {
        let Some(proof) = self.proofs.proofs.get_mut(&ticket) else {
            return;
        };
        match proof.left.pop_front() {
            Some((port, frame)) => {
                proof.report.probes += 1;
                self.link.push(Purpose::Probe(ticket), Command::Probe { port, frame });
            }
            None => proof.done = true,
        }
    }

    pub(crate) fn probed(&mut self, ticket: u64, answer: Answer, now: u64) {
        let probed = match answer.outcome {
            Ok(Reply::Probed(probed)) => *probed,
            Ok(_) => return self.probe_lost(ticket, now),
            Err(reason) => {
                self.fail(ticket, format!("the device refused the probe: {reason}"));
                return;
            }
        };
        let why = self.why_not(ticket, &probed);
        let Some(proof) = self.proofs.proofs.get_mut(&ticket) else {
            return;
        };
        proof.report.trace = Some(probed.trace);
        match why {
            Some(why) => {
                proof.report.detail = why;
                self.next_probe(ticket);
            }
            None => {
                proof.report.proven = true;
                proof.report.detail = "a probe was judged by it in the device".to_owned();
                proof.done = true;
                let rule = proof.report.rule.clone();
                let at = self.moment(now);
                if let Some(status) = self.statuses.get_mut(&rule)
                    && status.state() == RuleState::Confirmed
                {
                    status.set(RuleState::Proven, None, at);
                }
            }
        }
    }

    /// Why a probe is no proof; `None`: it is one.
    fn why_not(&self, ticket: u64, probed: &Probed) -> Option<String> {
        let proof = self.proofs.proofs.get(&ticket)?;
        let hit = probed.hits.iter().any(|id| proof.entries.contains(id));
        let dropped = matches!(probed.trace.outcome, TraceOutcome::Drop { .. });
        if hit && (dropped || !proof.denies) {
            return None;
        }
        if hit {
            return Some("it was hit, but a later stage allowed the probe".to_owned());
        }
        let steps = probed.trace.steps.iter().filter_map(|s| {
            let name = s.rule.and_then(|r| self.name(r.rule))?;
            Some(format!("{name} ({:?})", s.executor))
        });
        let steps: Vec<String> = steps.collect();
        Some(format!(
            "the probe was judged by: {}",
            if steps.is_empty() { "no rule".to_owned() } else { steps.join(", ") }
        ))
    }

    pub(crate) fn probe_lost(&mut self, ticket: u64, _now: u64) {
        self.fail(ticket, "the device did not answer the probe".to_owned());
    }

    fn fail(&mut self, ticket: u64, detail: String) {
        if let Some(proof) = self.proofs.proofs.get_mut(&ticket) {
            proof.report.detail = detail;
            proof.done = true;
        }
    }

    /// Ends all proofs that are under way.
    pub(crate) fn proofs_failed(&mut self, code: &str) {
        for proof in self.proofs.proofs.values_mut().filter(|p| !p.done) {
            proof.report.detail = format!("the device was lost during the proof: {code}");
            proof.done = true;
        }
    }
}
