//! The laboratory from outside: questions, commands, signals, the keeper's death.

use crate::{Case, case_command, in_lab, options, wants_user_namespace};
use lab::{LabError, LabInfo, LabOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("status_is_passed_on", status_is_passed_on),
    ("orphans_are_reaped", orphans_are_reaped),
    ("one_lab_per_name", one_lab_per_name),
    ("exec_runs_in_the_host", exec_runs_in_the_host),
    ("signal_stops_in_order", signal_stops_in_order),
    ("deaf_body_is_killed", deaf_body_is_killed),
    ("sigkill_leaves_nothing", sigkill_leaves_nothing),
    ("threads_are_refused", threads_are_refused),
    ("forbidden_is_said_in_one_line", forbidden_is_said_in_one_line),
];

/// What these cases spawn; not cases themselves.
pub const HELPERS: &[Case] =
    &[("helper_keep", || keep(false)), ("helper_deaf", || keep(true)), ("helper_exec", helper_exec)];

/// A laboratory with hosts a and b that runs until told to stop, with a daemon in it.
fn keep(deaf: bool) -> i32 {
    let mut options = options("keep");
    options.grace = Duration::from_millis(if deaf { 300 } else { 5000 });
    let name = options.name.clone();
    let body = |mut lab: lab::Lab| {
        lab.add_host("a").expect("host");
        lab.add_host("b").expect("host");
        // A daemon in the full sense: of another session, its parent gone.
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "(setsid sleep 1000 >/dev/null 2>&1 &)"]).status().expect("daemon");
        println!("ready {name}");
        while !lab.stop().wait(Duration::from_secs(100)) || deaf {}
        println!("stopping in order");
        7
    };
    lab::enter(&options, body).unwrap_or_else(|e| {
        println!("{e}");
        crate::SKIPPED
    })
}

/// Runs `helper_exec NAME HOST COMMAND...`.
fn helper_exec() -> i32 {
    let args: Vec<OsString> = std::env::args_os().skip(3).collect();
    let text = |i: usize| args[i].to_str().expect("text");
    lab::exec(Some(text(0)), text(1), &args[2..]).unwrap_or_else(|e| {
        println!("{e}");
        99
    })
}

struct Kept {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    info: LabInfo,
}

/// Spawns a helper laboratory and waits until it is ready; `None` if it can't be made here.
fn spawn(helper: &str) -> Option<Kept> {
    let mut command = case_command(helper, wants_user_namespace());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("spawn");
    let mut output = BufReader::new(child.stdout.take().expect("stdout"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    let Some(name) = line.trim().strip_prefix("ready ") else {
        println!("skipped: {line}");
        assert_eq!(child.wait().expect("wait").code(), Some(crate::SKIPPED));
        return None;
    };
    let info = lab::query(Some(name)).expect("query");
    Some(Kept { child, output, info })
}

impl Kept {
    fn keeper(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32).expect("pid")
    }

    fn exec(&self, host: &str, command: &[&str]) -> (Option<i32>, String) {
        let mut helper = case_command("helper_exec", false);
        helper.arg(&self.info.name).arg(host).args(command);
        let output = helper.output().expect("exec");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    }

    fn kill(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Living processes whose namespace of that kind is one of `inodes`. (Those that ended and wait
/// for the system's pid 1 to take note hold nothing.)
fn processes_in(kind: &str, inodes: &BTreeSet<u64>) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.parse::<u32>().is_err() {
            continue;
        }
        let namespace = fs::metadata(entry.path().join("ns").join(kind));
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let zombie = status.lines().any(|l| l.starts_with("State:\tZ"));
        if namespace.is_ok_and(|m| inodes.contains(&m.ino())) && !zombie {
            found.push(pid);
        }
    }
    found
}

fn inode(path: &str) -> u64 {
    fs::metadata(path).expect("namespace").ino()
}

fn status_is_passed_on() -> i32 {
    let status = |body: fn(lab::Lab) -> i32| lab::enter(&options("status"), body);
    // Each enter needs a fresh process: the first one's keeper has used up its single fork.
    match std::env::var("SOFTDPU_LAB_TEST_STATUS").as_deref() {
        Ok("seven") => status(|_| 7).expect("enter"),
        Ok("panic") => status(|_| panic!("a panic that the test wants")).expect("enter"),
        Ok("signal") => status(|_| {
            kill_process(rustix::process::getpid(), Signal::KILL).expect("kill");
            0
        })
        .expect("enter"),
        _ => {
            for (which, expected) in [("seven", 7), ("panic", 101), ("signal", 137)] {
                let mut command = case_command("status_is_passed_on", wants_user_namespace());
                let child = command.env("SOFTDPU_LAB_TEST_STATUS", which).stderr(Stdio::null());
                assert_eq!(child.status().expect("run").code(), Some(expected), "{which}");
            }
            0
        }
    }
}

fn orphans_are_reaped() -> i32 {
    in_lab("orphans", |_| {
        let mut shell = Command::new("/bin/sh");
        let script = "(sleep 0.05; exit 3) & echo $!";
        let output = shell.args(["-c", script]).output().expect("shell");
        let pid: i32 = String::from_utf8(output.stdout).expect("text").trim().parse().expect("pid");
        let begin = Instant::now();
        while fs::exists(format!("/proc/{pid}")).expect("/proc") {
            assert!(begin.elapsed() < Duration::from_secs(5), "orphan {pid} was not reaped");
            std::thread::yield_now();
        }
        // Reaping by pid 1 does not take the body's own children's statuses.
        let status = Command::new("/bin/sh").args(["-c", "exit 5"]).status().expect("shell");
        assert_eq!(status.code(), Some(5));
    })
}

fn one_lab_per_name() -> i32 {
    let Some(mut kept) = spawn("helper_keep") else { return crate::SKIPPED };
    let error = lab::enter(&LabOptions::new(kept.info.name.clone()), |_| 0).expect_err("taken");
    assert_eq!(
        error.to_string(),
        format!("a laboratory named `{}` is already running: end it, or choose another name", kept.info.name)
    );
    assert!(lab::running().expect("running").contains(&kept.info.name));
    kept.kill();
    assert!(!lab::running().expect("running").contains(&kept.info.name));
    let error = lab::query(Some(&kept.info.name)).expect_err("gone");
    assert!(matches!(error, LabError::NotRunning(_)), "{error}");
    0
}

fn exec_runs_in_the_host() -> i32 {
    let Some(mut kept) = spawn("helper_keep") else { return crate::SKIPPED };
    let net = format!("net:[{}]", inode(kept.info.hosts["a"].to_str().expect("path")));
    let (status, output) = kept.exec("a", &["readlink", "/proc/self/ns/net"]);
    assert_eq!((status, output.trim()), (Some(0), net.as_str()));
    let (_, output) = kept.exec("a", &["cat", "/proc/1/comm"]);
    assert_eq!(output.trim(), fs::read_to_string(comm(kept.info.init_pid)).expect("comm").trim());
    let directory = std::env::current_dir().expect("cwd");
    let (_, output) = kept.exec("b", &["pwd"]);
    assert_eq!(output.trim(), directory.to_str().expect("path"));
    for (command, expected) in [
        (&["sh", "-c", "exit 42"][..], 42),
        (&["sh", "-c", "kill -9 $$"][..], 137),
        (&["/no/such/program"][..], 127),
        (&["/dev/null"][..], 126),
        (&["sh", "-c", "test $(id -u) = 0"][..], 0),
    ] {
        assert_eq!(kept.exec("b", command).0, Some(expected), "{command:?}");
    }
    let (status, output) = kept.exec("aa", &["true"]);
    let said =
        format!("no host `aa` in laboratory `{}` (did you mean `a`?); its hosts: a, b, dpu", kept.info.name);
    assert_eq!((status, output.trim()), (Some(99), said.as_str()));
    kept.kill();
    0
}

fn comm(pid: i32) -> String {
    format!("/proc/{pid}/comm")
}

fn signal_stops_in_order() -> i32 {
    for signal in [Signal::INT, Signal::TERM] {
        let Some(mut kept) = spawn("helper_keep") else { return crate::SKIPPED };
        kill_process(kept.keeper(), signal).expect("signal");
        let mut rest = String::new();
        kept.output.read_to_string(&mut rest).expect("read");
        assert_eq!(rest.trim(), "stopping in order");
        assert_eq!(kept.child.wait().expect("wait").code(), Some(7));
    }
    0
}

fn deaf_body_is_killed() -> i32 {
    let Some(mut kept) = spawn("helper_deaf") else { return crate::SKIPPED };
    let begin = Instant::now();
    kill_process(kept.keeper(), Signal::TERM).expect("signal");
    assert_eq!(kept.child.wait().expect("wait").code(), Some(137));
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300), "the grace is kept: {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    0
}

fn sigkill_leaves_nothing() -> i32 {
    let Some(mut kept) = spawn("helper_keep") else { return crate::SKIPPED };
    let init = kept.info.init_pid;
    let pid_ns = BTreeSet::from([inode(&format!("/proc/{init}/ns/pid"))]);
    let mount_ns = BTreeSet::from([inode(&format!("/proc/{init}/ns/mnt"))]);
    let hosts = kept.info.hosts.values().map(|p| inode(p.to_str().expect("path"))).collect();
    let remains = || {
        let mut all = processes_in("pid", &pid_ns);
        all.extend(processes_in("mnt", &mount_ns));
        all.extend(processes_in("net", &hosts));
        all
    };
    // pid 1, the body and the daemon, each seen by pid and mount namespace at least.
    assert!(remains().len() >= 6, "{:?}", remains());
    assert_eq!(kept.info.hosts.len(), 3);
    let (status, _) = kept.exec("a", &["true"]);
    assert_eq!(status, Some(0));
    kept.kill();
    let begin = Instant::now();
    while !remains().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(1), "left behind: {:?}", remains());
    }
    assert!(!lab::running().expect("running").contains(&kept.info.name));
    // Nothing else can hold a namespace: no mount of this one's shows any.
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains("softdpu-lab"), "{mounts}");
    for inode in &hosts {
        assert!(!mounts.contains(&format!("net:[{inode}]")), "{mounts}");
    }
    0
}

fn threads_are_refused() -> i32 {
    let error = std::thread::scope(|scope| {
        scope.spawn(|| lab::enter(&options("threads"), |_| 0)).join().expect("join")
    });
    let error = error.expect_err("two threads");
    assert!(matches!(error, LabError::Threads(2)), "{error}");
    0
}

/// A user namespace may forbid further ones; what is said then is what a system that forbids
/// them is told.
fn forbidden_is_said_in_one_line() -> i32 {
    let mut outer = options("forbidden");
    outer.user_namespace = true;
    let result = lab::enter(&outer, |_| {
        fs::write("/proc/sys/user/max_user_namespaces", "0").expect("sysctl");
        let mut inner = LabOptions::new("inner");
        inner.user_namespace = true;
        let error = lab::enter(&inner, |_| 0).expect_err("forbidden").to_string();
        assert_eq!(
            error,
            "this system does not let you make namespaces (No space left on device (os error 28)): \
             user.max_user_namespaces is 0; set it to 10000, or run as root"
        );
        0
    });
    match result {
        Err(e @ LabError::NamespacesForbidden { .. }) => {
            println!("skipped: {e}");
            crate::SKIPPED
        }
        other => other.expect("enter"),
    }
}
