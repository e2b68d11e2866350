//! Runs every fuzz target for a while.

use std::path::Path;
use std::process::Command;

/// The version that is installed where `cargo fuzz` is missing.
const CARGO_FUZZ: &str = "0.13.2";

/// Each target for the given seconds; finds are reported by libFuzzer and end the run.
pub fn run(root: &Path, args: &[String]) -> Result<(), String> {
    let seconds = match args {
        [] => 20,
        [flag, n] if flag == "--seconds" => {
            n.parse::<u32>().map_err(|_| format!("--seconds {n}: not a number"))?
        }
        _ => return Err("cargo xtask fuzz [--seconds N]".into()),
    };
    let targets = targets(root)?;
    if !ok(Command::new("cargo").args(["+nightly", "--version"])) {
        return Err("fuzzing needs the nightly toolchain: rustup toolchain install nightly".into());
    }
    if !ok(Command::new("cargo").args(["+nightly", "fuzz", "--version"])) {
        println!("cargo fuzz is missing; installing {CARGO_FUZZ}");
        let install = ["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ];
        crate::run(Command::new("cargo").args(install))?;
    }
    crate::run(Command::new("cargo").current_dir(root).args([
        "+nightly",
        "fuzz",
        "build",
        "--sanitizer",
        "address",
    ]))?;
    let scratch = std::env::temp_dir().join(format!("softdpu-fuzz-{}", std::process::id()));
    for target in &targets {
        println!("fuzz: {target}, {seconds} s");
        // New finds go to the scratch folder, the committed corpus is only read.
        let found = scratch.join(target);
        std::fs::create_dir_all(&found).map_err(|e| format!("{}: {e}", found.display()))?;
        let corpus = root.join("fuzz/corpus").join(target);
        let mut command = Command::new("cargo");
        command.current_dir(root).args(["+nightly", "fuzz", "run", "--sanitizer", "address", target]);
        command.arg(&found).arg(&corpus).arg("--");
        command.arg(format!("-max_total_time={seconds}")).args(["-verbosity=0", "-rss_limit_mb=4096"]);
        crate::run(&mut command)?;
    }
    let _ = std::fs::remove_dir_all(&scratch);
    println!("fuzz: {} targets, nothing found", targets.len());
    Ok(())
}

fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for file in crate::unsafe_code::rust_files(&folder)? {
        names.extend(file.file_stem().map(|s| s.to_string_lossy().into_owned()));
    }
    if names.is_empty() {
        return Err(format!("{}: no targets", folder.display()));
    }
    Ok(names)
}

fn ok(command: &mut Command) -> bool {
    command.output().is_ok_and(|o| o.status.success())
}
