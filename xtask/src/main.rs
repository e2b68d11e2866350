//! The developer's day: each task does what CI does.
#![forbid(unsafe_code)]

mod check_deps;
mod fuzz;
mod licences;
mod unsafe_code;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "cargo xtask TASK

  check                          compile everything
  lint                           formatting, clippy with warnings denied, check-deps
  check-deps                     the rules between crates, where unsafe may be, licences of dependencies
  test                           every test that needs a Rust toolchain and a C compiler only
  demo                           the lab examples/two-tenants
  bench [ARGS...]                softdpu bench pipeline
  fuzz [--seconds N]             each fuzz target for N seconds (20), with the nightly toolchain
  sim [--seed N] [--cases N]     whole devices under a seed, against the reference policy";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match args.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", [].as_slice()),
    };
    let result = match task {
        "check" => cargo(&["check", "--workspace", "--all-targets"], &[]),
        "lint" => lint(),
        "check-deps" => check_deps(),
        "test" => make("test"),
        "demo" => make("demo"),
        "bench" => cargo(&["run", "--release", "-p", "softdpu", "--", "bench", "pipeline"], rest),
        "fuzz" => fuzz::run(&root(), rest),
        "sim" => cargo(&["run", "--release", "--quiet", "-p", "softdpu-testkit", "--bin", "sim", "--"], rest),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

fn lint() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    check_deps()
}

fn check_deps() -> Result<(), String> {
    let root = root();
    let mut wrong = check_deps::check(&root)?;
    wrong.extend(unsafe_code::check(&root)?);
    wrong.extend(licences::check(&root)?);
    if wrong.is_empty() {
        println!("check-deps: crates, unsafe code and licences are as they should be");
        return Ok(());
    }
    Err(wrong.join("\n"))
}

fn cargo(args: &[&str], more: &[String]) -> Result<(), String> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    run(Command::new(program).current_dir(root()).args(args).args(more))
}

fn make(target: &str) -> Result<(), String> {
    run(Command::new("make").current_dir(root()).arg(target))
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}
