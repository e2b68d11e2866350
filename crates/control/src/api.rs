//! What the controller's own socket carries: one [`ApiRequest`] and one [`ApiAnswer`] a line, as JSON. The caller does the
//! socket; [`Controller::ask`] and [`Controller::answer`] do the rest.

use crate::controller::{Controller, ResetReport, Submission, Verdict};
use crate::explain::{Explanation, RuleDetail};
use crate::prove::ProofReport;
use crate::report::{ControlStatus, Diff, RuleChange};
use crate::rule::RuleReport;
use contract::ResetScope;
use model::Config;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use store::Store;

/// A question to the controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiRequest {
    /// Answered by [`ApiAnswer::Rules`].
    RuleList,
    /// Answered by [`ApiAnswer::Rule`].
    RuleShow {
        /// The rule's name.
        id: String,
    },
    /// Answered by [`ApiAnswer::Explanation`].
    RuleExplain {
        /// The rule's name.
        id: String,
    },
    /// Answered by [`ApiAnswer::Proof`], once the probes are back.
    RuleProve {
        /// The rule's name.
        id: String,
    },
    /// Answered by [`ApiAnswer::Applied`] once the outcome is known, by [`ApiAnswer::Plan`] for a dry run.
    Apply {
        /// The configuration.
        text: String,
        /// Its file's path, for errors and for what it names relative to itself.
        file: String,
        /// Who asks for it.
        author: String,
        /// Only check it, and say what it would change.
        dry_run: bool,
    },
    /// Answered by [`ApiAnswer::Diff`].
    Diff,
    /// Answered by [`ApiAnswer::Reset`], once the device is back.
    Reset {
        /// What the reset reaches.
        scope: ResetScope,
    },
    /// Answered by [`ApiAnswer::Status`].
    Status,
    /// Answered by [`ApiAnswer::Names`].
    Names,
}

/// The controller's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiAnswer {
    /// All rules.
    Rules(Vec<RuleReport>),
    /// One rule with its entries and history.
    Rule(RuleDetail),
    /// Why a rule is where it is.
    Explanation(Explanation),
    /// What a proof found.
    Proof(ProofReport),
    /// What became of a change.
    Applied {
        /// Its revision.
        revision: u64,
        /// Its outcome.
        verdict: Verdict,
    },
    /// What a change would do.
    Plan(Vec<RuleChange>),
    /// Where wanted and found differ.
    Diff(Diff),
    /// The reset, with its times.
    Reset(ResetReport),
    /// The controller as a whole.
    Status(ControlStatus),
    /// Names of rules by number.
    Names(BTreeMap<u32, String>),
    /// The request cannot be answered; each line says what, where and what to do.
    Error(Vec<String>),
}

/// A question whose answer may take time.
#[derive(Debug, Clone, PartialEq)]
pub struct Ticket(Waiting);

#[derive(Debug, Clone, PartialEq)]
enum Waiting {
    Ready(Box<ApiAnswer>),
    Proof(u64),
    Apply(u64),
    Reset(u64),
}

impl<S: Store> Controller<S> {
    /// Takes a question.
    pub fn ask(&mut self, request: ApiRequest, now: u64) -> Ticket {
        let answer = match request {
            ApiRequest::RuleList => ApiAnswer::Rules(self.rules()),
            ApiRequest::RuleShow { id } => match self.detail(&id) {
                Some(detail) => ApiAnswer::Rule(detail),
                None => no_rule(&id),
            },
            ApiRequest::RuleExplain { id } => match self.explain(&id) {
                Some(explanation) => ApiAnswer::Explanation(explanation),
                None => no_rule(&id),
            },
            ApiRequest::RuleProve { id } => return Ticket(Waiting::Proof(self.prove(&id))),
            ApiRequest::Apply { text, file, author, dry_run } => {
                match self.take_text(text, &file, author, dry_run, now) {
                    Ok(waiting) => return Ticket(waiting),
                    Err(lines) => ApiAnswer::Error(lines),
                }
            }
            ApiRequest::Diff => ApiAnswer::Diff(self.diff()),
            ApiRequest::Reset { scope } => {
                self.reset(scope);
                return Ticket(Waiting::Reset(now));
            }
            ApiRequest::Status => ApiAnswer::Status(self.status()),
            ApiRequest::Names => ApiAnswer::Names(self.names()),
        };
        Ticket(Waiting::Ready(Box::new(answer)))
    }

    /// The answer to a question; `None` while it is not known.
    pub fn answer(&self, ticket: &Ticket) -> Option<ApiAnswer> {
        match &ticket.0 {
            Waiting::Ready(answer) => Some((**answer).clone()),
            Waiting::Proof(proof) => self.proof(*proof).cloned().map(ApiAnswer::Proof),
            Waiting::Apply(revision) => match self.verdict(*revision) {
                Some(Verdict::Pending) => None,
                Some(verdict) => Some(ApiAnswer::Applied { revision: *revision, verdict: verdict.clone() }),
                None => Some(ApiAnswer::Error(vec![format!("revision {revision} is no longer remembered")])),
            },
            Waiting::Reset(asked) => {
                let asked = self.moment(*asked);
                let done = |r: &&ResetReport| r.device_back.is_some() || r.error.is_some();
                let reset = self.last_reset().filter(|r| r.impact_start >= asked).filter(done);
                reset.cloned().map(ApiAnswer::Reset)
            }
        }
    }

    fn take_text(
        &mut self,
        text: String,
        file: &str,
        author: String,
        dry_run: bool,
        now: u64,
    ) -> Result<Waiting, Vec<String>> {
        let config = Config::parse_at(&text, Path::new(file));
        let config = config.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        if dry_run {
            let changes = self.dry_run(&config.desired).map_err(|e| vec![e.to_string()])?;
            return Ok(Waiting::Ready(Box::new(ApiAnswer::Plan(changes))));
        }
        let submission = Submission { desired: config.desired, text, author };
        let revision = self.apply(submission, now).map_err(|e| vec![e.to_string()])?;
        Ok(Waiting::Apply(revision))
    }
}

fn no_rule(id: &str) -> ApiAnswer {
    ApiAnswer::Error(vec![format!("there is no rule {id:?}; `softdpu rule list` shows all")])
}
