//! The laboratory of two tenants from beginning to end, as `make demo` runs it: real namespaces, the real daemon. Skipped, with a
//! line that says so, where the system does not let this user make namespaces.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One laboratory at a time: each wants the machine.
static MACHINE: Mutex<()> = Mutex::new(());

/// The example under a name of its own, so that it runs beside others.
struct Example {
    directory: PathBuf,
    name: String,
    _machine: MutexGuard<'static, ()>,
}

impl Example {
    fn new() -> Example {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
        let name = format!("demo-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(&name);
        fs::create_dir(&directory).expect("a directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/two-tenants");
        let lab = fs::read_to_string(source.join("lab.toml")).expect("lab.toml");
        let renamed = lab.replacen("name = \"two-tenants\"", &format!("name = \"{name}\""), 1);
        assert_ne!(renamed, lab);
        fs::write(directory.join("lab.toml"), renamed).expect("write");
        fs::copy(source.join("device.toml"), directory.join("device.toml")).expect("copy");
        Example { directory, name, _machine: machine }
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softdpu"));
        command.args(["lab", "run"]).arg(&self.directory).args(options).stdin(Stdio::null());
        command
    }

    /// Runs it to its end; `None` where there are no namespaces for us.
    fn run(&self, options: &[&str]) -> Option<Output> {
        let output = self.command(options).output().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("does not let you make namespaces") {
            println!("skipped: {errors}");
            return None;
        }
        println!("{}{errors}", String::from_utf8_lossy(&output.stdout));
        Some(output)
    }

    /// Starts it and reads on until a line begins so.
    fn until(&self, options: &[&str], line: &str) -> Option<Running> {
        let mut child =
            self.command(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn");
        let output = BufReader::new(child.stdout.take().expect("stdout"));
        let mut running = Running { child, output, namespaces: Vec::new() };
        loop {
            let mut text = String::new();
            if running.output.read_line(&mut text).expect("read") == 0 {
                let mut errors = String::new();
                running.child.stderr.take().expect("stderr").read_to_string(&mut errors).expect("read");
                assert!(
                    errors.contains("does not let you make namespaces"),
                    "ended before {line:?}: {errors}"
                );
                println!("skipped: {errors}");
                return None;
            }
            if text.starts_with(line) {
                break;
            }
        }
        let info = lab::query(Some(&self.name)).expect("the laboratory answers");
        running
            .namespaces
            .push(("pid", inode(&format!("/proc/{}/ns/pid", info.init_pid)).expect("namespace")));
        for path in info.hosts.values() {
            running.namespaces.push(("net", fs::metadata(path).expect("namespace").ino()));
        }
        assert!(running.left().len() > 3, "the laboratory, supervisor, device and controller run");
        Some(running)
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A laboratory under way.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    /// Kind and inode of its namespaces.
    namespaces: Vec<(&'static str, u64)>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal");
    }

    /// Living processes in its namespaces. (Those that have ended and wait for the system's pid 1 to take note hold nothing.)
    fn left(&self) -> Vec<String> {
        let mut found = Vec::new();
        for process in fs::read_dir("/proc").expect("/proc").flatten() {
            let path = process.path();
            let inside = |(kind, number): &(&str, u64)| {
                inode(&format!("{}/ns/{kind}", path.display())) == Some(*number)
            };
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let state = status.lines().find(|l| l.starts_with("State:")).unwrap_or("");
            if self.namespaces.iter().any(inside) && !state.starts_with("State:\tZ") {
                found.push(format!("{} {state}", path.display()));
            }
        }
        found
    }

    /// Waits for its end, and that nothing of it is left.
    fn ended(&mut self) -> Option<i32> {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("read");
        let status = self.child.wait().expect("wait");
        // The kernel takes a killed laboratory apart in the background.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.left().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(self.left(), Vec::<String>::new(), "processes are left");
        status.code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn inode(path: &str) -> Option<u64> {
    fs::metadata(path).ok().map(|m| m.ino())
}

/// Rows of the final table by step: how many, and how many of them held.
fn rows(stdout: &str) -> Vec<(usize, usize)> {
    let table: Vec<&str> = stdout.lines().skip_while(|l| !l.starts_with("STEP  CHECK")).skip(1).collect();
    let of_step = |step: usize| {
        let rows = table.iter().filter(|l| l.starts_with(&format!("{step}  ")));
        (rows.clone().count(), rows.filter(|l| l.ends_with("  ok")).count())
    };
    (1..=8).map(of_step).collect()
}

#[cfg(not(feature = "planted-leak"))]
fn holds(options: &[&str]) {
    let Some(output) = Example::new().run(options) else { return };
    let stdout = String::from_utf8_lossy(&output.stdout);
    for (i, (checks, held)) in rows(&stdout).into_iter().enumerate() {
        assert!(checks > 0 && held == checks, "step {}: {held} of {checks} checks held", i + 1);
    }
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(not(feature = "planted-leak"))]
#[test]
fn every_check_holds() {
    holds(&[]);
}

#[cfg(not(feature = "planted-leak"))]
#[test]
fn every_check_holds_on_veth_pairs() {
    holds(&["--veth"]);
}

/// A device that loses one frame in 500 without counting it is found out, and the check says how many it lost.
#[cfg(feature = "planted-leak")]
#[test]
fn a_leak_turns_it_red() {
    let Some(output) = Example::new().run(&[]) else { return };
    let stdout = String::from_utf8_lossy(&output.stdout);
    let (checks, held) = rows(&stdout)[7];
    assert!(held < checks, "step 8 must fail");
    let words: Vec<&str> = stdout.split_whitespace().collect();
    let told = words.windows(4).filter_map(|w| match w {
        [n, "frames", "leaked", "at"] => n.parse::<u64>().ok(),
        _ => None,
    });
    assert!(told.sum::<u64>() > 0, "the check says how many leaked");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn signals_leave_nothing() {
    for (signal, status) in [(Signal::INT, Some(130)), (Signal::TERM, Some(130)), (Signal::KILL, None)] {
        let Some(mut running) = Example::new().until(&[], "Step 4") else { return };
        std::thread::sleep(Duration::from_millis(300));
        running.signal(signal);
        assert_eq!(running.ended(), status, "after {signal:?}");
    }
}

#[test]
fn kept_until_asked_to_end() {
    let example = Example::new();
    let Some(mut running) = example.until(&["--keep"], "The laboratory stays") else { return };
    let softdpu = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_softdpu"));
        command.arg(format!("--lab={}", example.name)).args(arguments).output().expect("run")
    };
    let status = softdpu(&["status", "-o", "json"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    assert!(String::from_utf8_lossy(&status.stdout).contains("\"unaccounted\": 0"));
    let inside = softdpu(&["lab", "exec", "blue-1", "cat", "/proc/net/dev"]);
    assert!(String::from_utf8_lossy(&inside.stdout).contains("blue-1:"));
    running.signal(Signal::INT);
    let ended = running.ended();
    assert_eq!(ended, Some(if cfg!(feature = "planted-leak") { 1 } else { 0 }));
}

#[test]
fn a_wrong_description_is_refused_with_its_place() {
    let example = Example::new();
    let path = example.directory.join("lab.toml");
    let text = fs::read_to_string(&path).expect("lab.toml");
    fs::write(&path, text.replacen("port = \"blue-1\"", "prot = \"blue-1\"", 1)).expect("write");
    let output = example.command(&[]).output().expect("run");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with(&format!("{}:9:1: ", path.display())), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}
