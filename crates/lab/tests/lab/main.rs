//! Laboratories on real namespaces. Each case runs in a process of its own, for entering one needs
//! a single thread; as root each runs twice, the second time in a user namespace.
//! `cargo test -p softdpu-lab --test lab -- PART` runs the cases whose names contain PART.

mod links;
mod outside;
mod traffic;

use lab::{Lab, LabError, LabOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// A case fails by panicking or by a status other than 0.
type Case = (&'static str, fn() -> i32);

/// The status that says a case could not run here.
const SKIPPED: i32 = 77;
/// A case may take this long.
const LIMIT_SECONDS: i64 = 60;
/// Set to make the case use a user namespace.
const USER_NAMESPACE: &str = "SOFTDPU_LAB_TEST_USER_NAMESPACE";

fn cases() -> Vec<Case> {
    [links::CASES, outside::CASES, traffic::CASES].concat()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name, ..] = args.as_slice()
        && flag == "--case"
    {
        let all = [cases(), outside::HELPERS.to_vec()].concat();
        let (_, case) = all.iter().find(|(n, _)| n == name).expect("a case of that name");
        std::process::exit(case());
    }
    let part = args.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    if args.iter().any(|a| a == "--list") {
        cases().iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let modes = if rustix::process::geteuid().is_root() { vec![false, true] } else { vec![false] };
    let mut failed = Vec::new();
    for (name, _) in cases().iter().filter(|(name, _)| name.contains(part)) {
        for &user in &modes {
            let label = if user { format!("{name} (user namespace)") } else { name.to_string() };
            let begin = Instant::now();
            let outcome = match run(name, user) {
                Some(0) => "ok",
                Some(SKIPPED) => "skipped",
                Some(_) => "FAILED",
                None => "FAILED (time limit)",
            };
            println!("test {label} ... {outcome} ({:.1} s)", begin.elapsed().as_secs_f64());
            if outcome.starts_with("FAILED") {
                failed.push(label);
            }
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn run(name: &str, user: bool) -> Option<i32> {
    let mut command = case_command(name, user);
    let mut child = command.stdin(Stdio::null()).spawn().expect("run the case");
    let pid = Pid::from_raw(child.id() as i32).expect("pid");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("pidfd");
    let limit = Timespec { tv_sec: LIMIT_SECONDS, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).expect("poll") > 0;
    if !ended {
        child.kill().expect("kill");
    }
    let status = child.wait().expect("wait");
    ended.then(|| status.code().unwrap_or(1))
}

/// A command that runs a case.
fn case_command(name: &str, user: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--case", name]).env_remove(USER_NAMESPACE);
    if user {
        command.env(USER_NAMESPACE, "1");
    }
    command
}

/// Options of a laboratory for this case.
fn options(name: &str) -> LabOptions {
    let mut options = LabOptions::new(format!("{name}-{}", std::process::id()));
    options.user_namespace = wants_user_namespace();
    options
}

fn wants_user_namespace() -> bool {
    std::env::var_os(USER_NAMESPACE).is_some()
}

/// Runs `body` in a laboratory; its panics fail the case.
fn in_lab(name: &str, body: impl FnOnce(Lab)) -> i32 {
    let result = lab::enter(&options(name), |lab| {
        body(lab);
        0
    });
    match result {
        Err(e @ LabError::NamespacesForbidden { .. }) => {
            println!("{name}: skipped: {e}");
            SKIPPED
        }
        other => other.expect("enter the laboratory"),
    }
}
