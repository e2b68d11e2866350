//! The commands that speak to a daemon.

use crate::args::{ApplyArgs, FlowCommand, Global, PortCommand, ResetArgs, RuleCommand, Scope, TraceArgs};
use crate::ask;
use crate::failure::{Failure, Result};
use crate::output::{print, say};
use crate::packet_words;
use crate::place::run_dir;
use crate::show;
use contract::ResetScope;
use contract::report::{Answer, PortReport, Query};
use control::api::{ApiAnswer, ApiRequest};
use std::path::Path;

/// An answer of another kind than the question wants: a daemon of another version.
fn unexpected<T>() -> Result<T> {
    Err(Failure::new("the daemon answers something else than was asked: is it of another version?"))
}

fn controller(run_dir: &Path, request: &ApiRequest) -> Result<ApiAnswer> {
    match ask::controller(run_dir, request)? {
        ApiAnswer::Error(lines) => Err(Failure::new(lines.join("\n"))),
        answer => Ok(answer),
    }
}

/// `softdpu status`
pub fn status(global: &Global) -> Result {
    match ask::device(&run_dir(global)?, &Query::Status)? {
        Answer::Status(status) => {
            print(global.output, &*status, show::status)?;
            match status.unaccounted {
                0 => Ok(()),
                n => Err(Failure::new(format!("unaccounted: {n}"))),
            }
        }
        _ => unexpected(),
    }
}

/// `softdpu port`
pub fn port(global: &Global, command: &PortCommand) -> Result {
    let Answer::Ports(ports) = ask::device(&run_dir(global)?, &Query::Ports)? else { return unexpected() };
    match command {
        PortCommand::List => print(global.output, &ports, |p| show::ports(p)),
        PortCommand::Show { name } => match ports.iter().find(|p| p.name == *name) {
            Some(port) => print(global.output, port, show::port),
            None => Err(no_port(name, &ports)),
        },
    }
}

fn no_port(name: &str, ports: &[PortReport]) -> Failure {
    let names: Vec<&str> = ports.iter().map(|p| p.name.as_str()).collect();
    Failure::new(format!("there is no port \"{name}\"; the ports are {}", names.join(", ")))
}

/// `softdpu flow`
pub fn flow(global: &Global, command: &FlowCommand) -> Result {
    let FlowCommand::List { limit } = command;
    match ask::device(&run_dir(global)?, &Query::Flows { limit: limit.saturating_add(1) })? {
        Answer::Flows(mut flows) => {
            let more = flows.len() > *limit;
            flows.truncate(*limit);
            print(global.output, &flows, |f| show::flows(f))?;
            if more {
                eprintln!("these are the first {limit}, there are more: --limit N shows N");
            }
            Ok(())
        }
        _ => unexpected(),
    }
}

/// `softdpu drops`
pub fn drops(global: &Global) -> Result {
    match ask::device(&run_dir(global)?, &Query::Drops)? {
        Answer::Drops(drops) => print(global.output, &drops, |d| show::drops(d)),
        _ => unexpected(),
    }
}

/// `softdpu trace`
pub fn trace(global: &Global, args: &TraceArgs) -> Result {
    let run_dir = run_dir(global)?;
    let Answer::Status(status) = ask::device(&run_dir, &Query::Status)? else { return unexpected() };
    let mac = status.enis.iter().find(|e| e.port == args.port).map_or([2, 0, 0, 0, 0, 2], |e| e.mac);
    let frame = packet_words::frame(&args.packet, mac)?;
    let query = Query::Trace { port: args.port.clone(), frame };
    let Answer::Trace(trace) = ask::device(&run_dir, &query)? else { return unexpected() };
    print(global.output, &trace, |t| show::trace(t, &names(&run_dir)))
}

/// Names of rules are the controller's; a dead one leaves numbers.
fn names(run_dir: &Path) -> show::Names {
    match controller(run_dir, &ApiRequest::Names) {
        Ok(ApiAnswer::Names(names)) => names,
        _ => show::Names::default(),
    }
}

/// `softdpu rule`
pub fn rule(global: &Global, command: &RuleCommand) -> Result {
    let run_dir = run_dir(global)?;
    let request = match command {
        RuleCommand::List => ApiRequest::RuleList,
        RuleCommand::Show { id } => ApiRequest::RuleShow { id: id.clone() },
        RuleCommand::Explain { id } => ApiRequest::RuleExplain { id: id.clone() },
        RuleCommand::Prove { id } => ApiRequest::RuleProve { id: id.clone() },
    };
    match controller(&run_dir, &request)? {
        ApiAnswer::Rules(rules) => print(global.output, &rules, |r| show::rules(r)),
        ApiAnswer::Rule(detail) => print(global.output, &detail, show::rule),
        ApiAnswer::Explanation(explanation) => print(global.output, &explanation, show::explanation),
        ApiAnswer::Proof(proof) => {
            print(global.output, &proof, |p| show::proof(p, &names(&run_dir)))?;
            if proof.proven { Ok(()) } else { Err(Failure { message: String::new(), status: 1 }) }
        }
        _ => unexpected(),
    }
}

/// `softdpu apply`
pub fn apply(global: &Global, args: &ApplyArgs) -> Result {
    let config = crate::process::load(&args.file)?;
    for warning in &config.warnings {
        eprintln!("{warning}");
    }
    let run_dir = run_dir(global)?;
    crate::process::fixed::check(&config, &run_dir)?;
    let text = std::fs::read_to_string(&args.file)
        .map_err(|e| Failure::new(format!("{}: {e}", args.file.display())))?;
    let file = std::path::absolute(&args.file).map_err(Failure::new)?.display().to_string();
    let author = std::env::var("USER").unwrap_or_else(|_| "unknown".into());
    let request = ApiRequest::Apply { text, file, author, dry_run: args.dry_run };
    match controller(&run_dir, &request)? {
        ApiAnswer::Plan(changes) => print(global.output, &changes, |c| show::plan(c)),
        ApiAnswer::Applied { revision, verdict } => match verdict {
            control::Verdict::Confirmed => {
                say(&format!("revision {revision} is in force, read back from the device"))
            }
            control::Verdict::Refused { rule, reason } => Err(Failure::new(format!(
                "revision {revision} is refused, what was before holds: rule {rule}: {reason}"
            ))),
            control::Verdict::Superseded => {
                Err(Failure::new(format!("revision {revision} was replaced by a later one before it began")))
            }
            control::Verdict::Pending => say(&format!("revision {revision} is under way")),
        },
        _ => unexpected(),
    }
}

/// `softdpu diff`
pub fn diff(global: &Global) -> Result {
    match controller(&run_dir(global)?, &ApiRequest::Diff)? {
        ApiAnswer::Diff(diff) => {
            print(global.output, &diff, show::diff)?;
            if diff.known && diff.lines.is_empty() {
                Ok(())
            } else {
                Err(Failure { message: String::new(), status: 1 })
            }
        }
        _ => unexpected(),
    }
}

/// `softdpu reset`
pub fn reset(global: &Global, args: &ResetArgs) -> Result {
    let scope = match args.scope {
        Scope::Warm => ResetScope::Warm,
    };
    match controller(&run_dir(global)?, &ApiRequest::Reset { scope })? {
        ApiAnswer::Reset(report) => print(global.output, &report, show::reset),
        _ => unexpected(),
    }
}
