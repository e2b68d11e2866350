//! The program under test: its commands, and a daemon in directories of its own.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The configuration that most cases start from.
pub const BASE: &str = include_str!("base.toml");
/// What takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `true`.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ended {
            status: output.status.code().expect("ended by itself"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Ended {
    /// What it printed; it must have gone well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// Its one line on stderr; it must have printed nothing else and ended with this status.
    #[track_caller]
    pub fn line(self, status: i32) -> String {
        assert_eq!((self.status, self.out.as_str()), (status, ""), "{self:?}");
        assert_eq!(self.err.matches('\n').count(), 1, "one line: {:?}", self.err);
        self.err.trim_end().to_owned()
    }
}

/// The program's path.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_softdpu");

/// A place for one daemon: run directory, state directory, configurations.
pub struct Place {
    pub dir: PathBuf,
}

impl Place {
    pub fn new(lab: &lab::Lab) -> Place {
        Place { dir: lab.run_dir().join("daemon") }.made()
    }

    fn made(self) -> Place {
        fs::create_dir(&self.dir).expect("directory");
        self
    }

    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub fn state_dir(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Writes a configuration.
    pub fn config(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).expect("write the configuration");
        path
    }

    /// A command of the program, about this place, run in the folder of the configurations.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(&self.dir).stdin(Stdio::null());
        command.env_remove("SOFTDPU_LAB").env("SOFTDPU_RUN_DIR", self.run_dir());
        command
    }

    /// Runs a command to its end.
    pub fn softdpu(&self, args: &[&str]) -> Ended {
        self.command(args).output().expect("run softdpu").into()
    }

    /// Runs a command given as one line of words.
    pub fn say(&self, line: &str) -> Ended {
        self.softdpu(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// What a command answers as JSON.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        let out = self.say(&format!("{line} -o json")).ok();
        serde_json::from_str(&out).expect("JSON")
    }

    /// `softdpu run` to its end: for what must fail.
    pub fn run(&self, config: &str) -> Ended {
        self.softdpu(&["run", "-c", config, "--state-dir", "state"])
    }

    /// The process that holds a lock, by the lock's content; it may be dead.
    pub fn pid(&self, name: &str) -> Pid {
        let text = fs::read_to_string(self.run_dir().join(format!("{name}.lock"))).expect("lock");
        Pid::from_raw(text.lines().next().expect("a line").parse().expect("process id")).expect("process id")
    }

    pub fn kill(&self, name: &str) -> Pid {
        let pid = self.pid(name);
        kill_process(pid, Signal::KILL).expect("kill");
        wait_for("the process is gone", || !alive(pid));
        pid
    }

    /// Waits until the device holds what is wanted and all ENIs are armed.
    pub fn wait_confirmed(&self) {
        wait_for("confirmed and armed", || {
            let armed = || {
                let status = self.json("status");
                status["enis"]
                    .as_array()
                    .is_some_and(|e| !e.is_empty() && e.iter().all(|e| e["armed"] == true))
            };
            self.say("diff").status == 0 && armed()
        });
    }

    /// State and reason of a rule.
    pub fn rule(&self, id: &str) -> (String, String) {
        let rules = self.json("rule list");
        let rule = rules.as_array().and_then(|r| r.iter().find(|r| r["id"] == id));
        let rule = rule.unwrap_or_else(|| panic!("no rule {id} in {rules}"));
        let text = |member: &str| rule[member].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    }

    /// Frames dropped for a reason, at all points.
    pub fn drops(&self, reason: &str) -> u64 {
        let drops = self.json("drops");
        let of_it = drops.as_array().into_iter().flatten().filter(|d| d["reason"] == reason);
        of_it.filter_map(|d| d["frames"].as_u64()).sum()
    }
}

/// A daemon that runs.
pub struct Daemon {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Daemon {
    /// Starts one with this configuration and waits until all is in force.
    #[track_caller]
    pub fn start(place: &Place, config: &str) -> Daemon {
        place.config("config.toml", config);
        let (out, err) = (place.dir.join("out"), place.dir.join("err"));
        let log = |path: &Path| File::create(path).expect("log");
        let mut command = place.command(&["run", "-c", "config.toml", "--state-dir", "state"]);
        let child = command.stdout(log(&out)).stderr(log(&err)).spawn().expect("run softdpu");
        let mut daemon = Daemon { child, out, err };
        wait_for("the daemon runs", || {
            let ended = daemon.child.try_wait().expect("wait");
            assert!(ended.is_none(), "it ended: {}", daemon.err());
            daemon.out().contains("softdpu runs")
        });
        place.wait_confirmed();
        daemon
    }

    /// What it has printed.
    pub fn out(&self) -> String {
        fs::read_to_string(&self.out).expect("log")
    }

    /// What it has complained about.
    pub fn err(&self) -> String {
        fs::read_to_string(&self.err).expect("log")
    }

    /// Kills the supervisor alone.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Sends the supervisor a signal and waits for its end; its status.
    pub fn end(mut self, signal: Signal) -> i32 {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
        self.wait()
    }

    /// Waits for its end; its status.
    pub fn wait(&mut self) -> i32 {
        let mut status = None;
        wait_for("the daemon ends", || {
            status = self.child.try_wait().expect("wait");
            status.is_some()
        });
        status.and_then(|s| s.code()).expect("ended by itself")
    }
}

/// Whether a process is there and no zombie.
pub fn alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim_start().is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Command lines of all processes of the program, in this pid namespace.
pub fn processes() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.starts_with(PROGRAM) {
            found.push(line);
        }
    }
    found
}

/// Asserts that nothing runs, nothing listens and no interface is there that was not before.
#[track_caller]
pub fn assert_nothing_left(lab: &lab::Lab, place: &Place, links: &[&str]) {
    assert_eq!(processes(), Vec::<String>::new(), "no process");
    let mut netlink = lab.dpu().expect("dpu").netlink().expect("netlink");
    let names: Vec<String> = netlink.links().expect("links").into_iter().map(|l| l.name).collect();
    assert_eq!(names, links, "no interface");
    for entry in fs::read_dir(place.run_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().expect("name");
        match name.strip_suffix(".sock") {
            Some(_) => {
                let connected = std::os::unix::net::UnixStream::connect(entry.path());
                assert!(connected.is_err(), "{name} listens");
            }
            None => {
                let file = File::open(entry.path()).expect("lock");
                let lock = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
                assert!(lock.is_ok(), "{name} is held");
            }
        }
    }
}
