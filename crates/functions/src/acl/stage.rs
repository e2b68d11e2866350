//! The stages' groups asked in turn, and one answer made of theirs.

use super::rules::{Action, Groups, Rule};
use crate::scope::Miss;
use packet::{DropReason, PuntReason};
use pipeline::judge::{self, Judgement, Step};

/// Stages of one direction.
pub const STAGES: usize = 5;

/// Access control of one direction.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// What it is called in a trace.
    pub name: &'static str,
    /// The first of [`STAGES`] registers that hold the groups of stages 1 to 5; 0: the stage is skipped.
    pub groups: usize,
    /// What a denied packet is dropped for.
    pub deny: DropReason,
}

impl<V: AsRef<Groups>> judge::Stage<V> for Stage {
    fn judge(&self, view: &V, judgement: &mut Judgement<'_>) -> Step {
        let mut allowed = true;
        let mut asked = false;
        for stage in 0..STAGES {
            let group = judgement.registers[self.groups + stage];
            if group == 0 {
                continue;
            }
            asked = true;
            let found = view.as_ref().get(group).and_then(|rules| rules.lookup(&judgement.key));
            let rule = match found {
                Ok(rule) => rule,
                Err(miss) => {
                    let step = miss.step(self.deny);
                    judgement.note(self.name, None, || missed(stage, group, miss));
                    return step;
                }
            };
            judgement.hit(self.name, rule.entry, || matched(stage, group, rule));
            match rule.action {
                Action::Allow => allowed = true,
                Action::Deny => allowed = false,
                Action::Punt => return Step::Punt(PuntReason::PuntEntry),
            }
            if rule.terminating {
                break;
            }
        }
        if !asked {
            judgement.note(self.name, None, || "no stage has a group: allowed".into());
        }
        if allowed { Step::Continue } else { Step::Drop(self.deny) }
    }
}

fn matched(stage: usize, group: u32, rule: &Rule) -> String {
    let does = match rule.action {
        Action::Allow => "allows",
        Action::Deny => "denies",
        Action::Punt => "punts",
    };
    let ends = if rule.terminating { ", terminating" } else { "" };
    let (stage, entry, priority) = (stage + 1, rule.entry, rule.priority);
    format!("stage {stage}, group {group}: entry {entry} (priority {priority}) {does}{ends}: {rule}")
}

fn missed(stage: usize, group: u32, miss: Miss) -> String {
    let stage = stage + 1;
    match miss {
        Miss::Decide => format!("stage {stage}, group {group}: no entry matches: denied"),
        Miss::Punt => format!("stage {stage}, group {group}: no entry matches, and not all are here: punted"),
    }
}
