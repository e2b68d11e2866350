//! The controller's answers, and traces, with the controller's names of rules where it answers.

use crate::output::{duration, pairs, rows as table};
use contract::report::{Executor, TraceOutcome, TraceReport};
use control::{Diff, Explanation, ProofReport, ResetReport, RuleChange, RuleDetail, RuleReport};
use packet::{ConsumeReason, DropReason};
use std::collections::BTreeMap;

/// Rule names by number; empty where the controller is dead.
pub type Names = BTreeMap<u32, String>;

/// A packet's way.
pub fn trace(report: &TraceReport, names: &Names) -> String {
    let steps = report.steps.iter().map(|step| {
        let rule = step.rule.map_or(String::new(), |r| {
            names.get(&r.rule).cloned().unwrap_or_else(|| format!("rule {}", r.rule))
        });
        [executor(step.executor).to_owned(), step.stage.clone(), rule, step.why.clone()]
    });
    let outcome = match &report.outcome {
        TraceOutcome::Forward { port } => format!("forwarded to port {port}"),
        TraceOutcome::Drop { reason } => {
            format!("dropped: {reason} ({})", DropReason::from_code(reason).map_or("", DropReason::meaning))
        }
        TraceOutcome::Consume { reason } => {
            format!(
                "ends here: {reason} ({})",
                ConsumeReason::from_code(reason).map_or("", ConsumeReason::meaning)
            )
        }
    };
    let mut text = pairs(&[
        ("packet", format!("{} from port {}", report.packet, report.port)),
        ("version", report.version.to_string()),
    ]);
    text.push('\n');
    text.push_str(&table(["WHERE", "STAGE", "RULE", "WHY"], steps.collect(), "no steps"));
    text.push('\n');
    text.push_str(&pairs(&[
        ("decided by", executor(report.executor).to_owned()),
        ("state lives", report.state.clone()),
        ("outcome", outcome),
    ]));
    text
}

fn executor(executor: Executor) -> &'static str {
    match executor {
        Executor::Device => "device",
        Executor::HostPath => "host path",
    }
}

/// All rules.
pub fn rules(rules: &[RuleReport]) -> String {
    let line = |r: &RuleReport| {
        [
            r.id.clone(),
            r.table.clone(),
            r.priority.to_string(),
            r.state.word().to_owned(),
            r.entries.clone(),
            r.hits_device.to_string(),
            r.hits_host.to_string(),
            r.reason.clone().unwrap_or_default(),
        ]
    };
    table(
        ["RULE", "TABLE", "PRIORITY", "STATE", "IN DEVICE", "HITS DEVICE", "HITS HOST", "REASON"],
        rules.iter().map(line).collect(),
        "no rules",
    )
}

/// One rule with its entries and history.
pub fn rule(detail: &RuleDetail) -> String {
    let r = &detail.rule;
    let state = match &r.reason {
        Some(reason) => format!("{}: {reason}", r.state.word()),
        None => r.state.word().to_owned(),
    };
    let mut text = pairs(&[
        ("rule", format!("{} (number {}, revision {})", r.id, r.number, r.revision)),
        ("state", state),
        ("in the device", format!("{} entries", r.entries)),
        ("hits", format!("{} device, {} host path", r.hits_device, r.hits_host)),
    ]);
    let places = detail.places.iter().map(|p| {
        [
            p.entry.to_string(),
            p.table.clone(),
            p.matches.clone(),
            p.action.clone(),
            p.place.clone(),
            p.reason.clone().unwrap_or_default(),
        ]
    });
    text.push('\n');
    text.push_str(&table(
        ["ENTRY", "TABLE", "MATCH", "ACTION", "PLACE", "REASON"],
        places.collect(),
        "no entries",
    ));
    let history = detail
        .history
        .iter()
        .map(|c| [duration(c.at.uptime_ns), c.state.word().to_owned(), c.reason.clone().unwrap_or_default()]);
    text.push('\n');
    text.push_str(&table(["AT", "STATE", "REASON"], history.collect(), "no history"));
    text
}

/// Why a rule is where it is.
pub fn explanation(e: &Explanation) -> String {
    let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let mut text = pairs(&[
        ("summary", e.summary.clone()),
        ("blocked by", list(&e.blocked_by)),
        ("overrides", list(&e.overrides)),
        ("what would help", e.remedy.clone().unwrap_or_else(|| "nothing is needed".into())),
    ]);
    text.push('\n');
    text.push_str(&rule(&e.detail));
    text
}

/// What a proof found.
pub fn proof(proof: &ProofReport, names: &Names) -> String {
    let mut text = pairs(&[
        ("rule", proof.rule.clone()),
        ("proven", if proof.proven { "yes" } else { "no" }.to_owned()),
        ("probes", proof.probes.to_string()),
        ("found", proof.detail.clone()),
    ]);
    if let Some(way) = &proof.trace {
        text.push('\n');
        text.push_str(&trace(way, names));
    }
    text
}

/// What a change would do.
pub fn plan(changes: &[RuleChange]) -> String {
    let rows = changes.iter().map(|c| [c.what.clone(), c.rule.clone()]).collect();
    table(["CHANGE", "RULE"], rows, "nothing would change")
}

/// Where wanted and found differ.
pub fn diff(diff: &Diff) -> String {
    if !diff.known {
        return "the device's entries are not known: it is not connected, or a change is under way".into();
    }
    let rows = diff.lines.iter().map(|l| {
        [
            l.what.clone(),
            l.place.clone(),
            l.rule.clone(),
            l.entry.to_string(),
            l.table.clone(),
            l.matches.clone(),
            l.action.clone(),
        ]
    });
    table(
        ["WHAT", "WHERE", "RULE", "ENTRY", "TABLE", "MATCH", "ACTION"],
        rows.collect(),
        "no difference: the device holds what is wanted",
    )
}

/// A reset's times.
pub fn reset(report: &ResetReport) -> String {
    let back = report.device_back.map_or("not yet".to_owned(), |back| {
        format!("after {}", duration(back.uptime_ns.saturating_sub(report.impact_start.uptime_ns)))
    });
    pairs(&[
        ("reset", report.scope.map_or("by itself".into(), |s| format!("{s:?}").to_lowercase())),
        ("device back", back),
    ])
}
