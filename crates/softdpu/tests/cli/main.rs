//! The daemon and the command line as a user meets them. Each case runs the real program in a network namespace of its own, and in a
//! process of its own, for entering one needs a single thread. `SOFTDPU_TEST_USER_NAMESPACE=1` makes root use a user namespace.
//! `cargo test -p softdpu --test cli -- PART` runs the cases whose names contain PART.

mod bad_input;
mod change;
mod daemon;
mod hosts;
mod lifecycle;
mod reading;

use lab::{Lab, LabError, LabOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// A case's name and the case itself; it fails by panicking.
type Case = (&'static str, fn() -> i32);

/// The status that says a case could not run here.
const SKIPPED: i32 = 77;
/// A case may take this long.
const LIMIT_SECONDS: i64 = 60;

fn cases() -> Vec<Case> {
    [bad_input::CASES, reading::CASES, change::CASES, lifecycle::CASES].concat()
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, name] = args.as_slice()
        && flag == "--case"
    {
        let (_, case) = *cases().iter().find(|(n, _)| n == name).expect("a case of that name");
        std::process::exit(case());
    }
    let part = args.iter().find(|a| !a.starts_with('-')).map_or("", String::as_str);
    if args.iter().any(|a| a == "--list") {
        cases().iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    for (name, _) in cases().iter().filter(|(name, _)| name.contains(part)) {
        let begin = Instant::now();
        let outcome = match run(name) {
            Some(0) => "ok",
            Some(SKIPPED) => "skipped",
            Some(_) => "FAILED",
            None => "FAILED (time limit)",
        };
        println!("test {name} ... {outcome} ({:.1} s)", begin.elapsed().as_secs_f64());
        if outcome.starts_with("FAILED") {
            failed.push(*name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn run(name: &str) -> Option<i32> {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    let mut child = command.args(["--case", name]).stdin(Stdio::null()).spawn().expect("run the case");
    let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("pidfd");
    let limit = Timespec { tv_sec: LIMIT_SECONDS, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).expect("poll") > 0;
    if !ended {
        child.kill().expect("kill");
    }
    let status = child.wait().expect("wait");
    ended.then(|| status.code().unwrap_or(1))
}

/// As [`in_lab`], for a case whose daemon makes TAPs.
fn with_taps(name: &str, body: impl FnOnce(Lab)) -> i32 {
    if lab::tap_available().is_err() {
        println!("{name}: skipped: /dev/net/tun is not open to this user");
        return SKIPPED;
    }
    in_lab(name, body)
}

/// Runs `body` in a laboratory; its panics fail the case.
fn in_lab(name: &str, body: impl FnOnce(Lab)) -> i32 {
    let mut options = LabOptions::new(format!("cli-{name}-{}", std::process::id()));
    options.user_namespace = std::env::var_os("SOFTDPU_TEST_USER_NAMESPACE").is_some();
    let result = lab::enter(&options, |lab| {
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
