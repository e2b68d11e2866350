//! The keeper: the process that a laboratory hangs on. It makes the pid (and user) namespace,
//! starts the inside, answers questions about it, and ends with it.
//!
//! The inside is two processes: pid 1, which builds the namespaces and then only reaps, and the
//! body, which runs the caller's closure. Pid 1 dies with the keeper (parent death signal) and
//! everything else in the pid namespace dies with pid 1.

use crate::error::LabError;
use crate::lab::{self, Lab, LabInfo, Report};
use crate::namespace::{self, Fork, Signals};
use crate::stop::{Stop, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::net::{self, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{self, Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};
use rustix::thread::UnshareFlags;
use std::fs;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a laboratory is kept.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Its name, one laboratory per name and user.
    pub name: String,
    /// After SIGINT, SIGTERM or SIGHUP to the keeper the body has this long to end by itself.
    pub grace: Duration,
    /// Use a user namespace even where root's rights would do without.
    pub user_namespace: bool,
}

impl LabOptions {
    /// The defaults: 5 s of grace, a user namespace only where one is needed.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), grace: Duration::from_secs(5), user_namespace: false }
    }
}

/// Enters a new laboratory and runs `body` in it. The caller must be single-threaded still.
///
/// `body` runs in a process of its own, with its own network, mount and pid namespaces, and may
/// start threads. The status that it returns is returned here, in the calling process, which is
/// the keeper meanwhile; a body that a signal `s` killed gives 128 + s, one that panicked 101.
/// SIGINT, SIGTERM and SIGHUP to the keeper raise [`Lab::stop`]; a second one, or the end of the
/// grace, kills the laboratory (status 137).
///
/// # Errors
/// Refused namespaces, a laboratory of this name already running, and failures of construction:
/// each before `body` began.
pub fn enter(options: &LabOptions, body: impl FnOnce(Lab) -> i32) -> Result<i32, LabError> {
    lab::check_name(&options.name)?;
    let threads = namespace::thread_count().map_err(LabError::setup("read /proc/self/task"))?;
    if threads != 1 {
        return Err(LabError::Threads(threads));
    }
    let address = lab::address(&options.name)?;
    let listener = UnixListener::bind_addr(&address).map_err(|e| match e.kind() {
        io::ErrorKind::AddrInUse => LabError::AlreadyRunning(options.name.clone()),
        _ => LabError::setup("bind the laboratory's socket")(e),
    })?;
    listener.set_nonblocking(true).map_err(LabError::setup("prepare the laboratory's socket"))?;
    let stop = Stop::new().map_err(LabError::setup("create an eventfd"))?;
    let (keeper_end, lab_end) = net::socketpair(
        net::AddressFamily::UNIX,
        net::SocketType::SEQPACKET,
        net::SocketFlags::CLOEXEC,
        None,
    )
    .map_err(LabError::setup("create a socket pair"))?;
    net::sockopt::set_socket_passcred(&keeper_end, true).map_err(LabError::setup("ask for credentials"))?;
    let signals = Signals::take().map_err(LabError::setup("take signals"))?;
    let user_namespace = unshare_outer(options.user_namespace)?;

    // What is buffered now would be written by both sides.
    let _ = io::stdout().flush();
    match namespace::fork().map_err(LabError::setup("fork"))? {
        Fork::Parent(init) => {
            drop(lab_end);
            let init_fd = process::pidfd_open(init, PidfdFlags::empty())
                .map_err(LabError::setup("open the laboratory's pidfd"))?;
            Keeper {
                init,
                init_fd,
                user_namespace,
                grace: options.grace,
                name: &options.name,
                report: None,
                failure: None,
            }
            .watch(&listener, &keeper_end, &signals, &stop)
        }
        Fork::Child => {
            drop((listener, keeper_end, signals));
            inside(&options.name, stop, lab_end, body)
        }
    }
}

/// Unshares what must be unshared before the fork. True if a user namespace was made.
fn unshare_outer(force_user: bool) -> Result<bool, LabError> {
    if !force_user && process::geteuid().is_root() {
        match namespace::unshare(UnshareFlags::NEWPID) {
            Ok(()) => return Ok(false),
            // Root of a container, perhaps: a user namespace of its own may still be granted.
            Err(rustix::io::Errno::PERM) => {}
            Err(e) => return Err(forbidden(e)),
        }
    }
    let (uid, gid) = (process::geteuid().as_raw(), process::getegid().as_raw());
    namespace::unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWPID).map_err(forbidden)?;
    fs::write("/proc/self/setgroups", "deny").map_err(forbidden)?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).map_err(forbidden)?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).map_err(forbidden)?;
    Ok(true)
}

/// The error of a refused namespace, with the setting that blocks where it can be read.
fn forbidden(cause: impl std::fmt::Display) -> LabError {
    let is = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|v| v.trim() == value);
    let hint = if is("/proc/sys/user/max_user_namespaces", "0") {
        "user.max_user_namespaces is 0; set it to 10000, or run as root"
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone is 0; set it to 1, or run as root"
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        "kernel.apparmor_restrict_unprivileged_userns is 1; set it to 0, or run as root"
    } else {
        "run as root, or in a container that allows user namespaces (docker: --privileged)"
    };
    LabError::NamespacesForbidden { cause: cause.to_string(), hint: hint.into() }
}

struct Keeper<'a> {
    init: Pid,
    init_fd: OwnedFd,
    user_namespace: bool,
    grace: Duration,
    name: &'a str,
    report: Option<(Pid, Report)>,
    failure: Option<LabError>,
}

impl Keeper<'_> {
    /// Serves until pid 1 has ended, and says how it did.
    fn watch(
        mut self,
        listener: &UnixListener,
        lab: &OwnedFd,
        signals: &Signals,
        stop: &Stop,
    ) -> Result<i32, LabError> {
        let mut lab_open = true;
        let mut deadline: Option<Instant> = None;
        loop {
            let mut fds = vec![
                PollFd::new(&self.init_fd, PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            if lab_open {
                fds.push(PollFd::new(lab, PollFlags::IN));
            }
            if self.report.is_some() {
                fds.push(PollFd::new(listener, PollFlags::IN));
            }
            let left = deadline.map(|d| timespec(d.saturating_duration_since(Instant::now())));
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(LabError::setup("watch the laboratory")(e)),
            }
            let init_ended = !fds[0].revents().is_empty();
            lab_open = lab_open && self.read_report(lab);
            if init_ended {
                return self.reap();
            }
            while signals.next().is_some() {
                stop.request();
                let again = deadline.is_some();
                deadline = Some(Instant::now() + if again { Duration::ZERO } else { self.grace });
            }
            if deadline.is_some_and(|d| d <= Instant::now()) {
                let _ = process::pidfd_send_signal(&self.init_fd, Signal::KILL);
                deadline = Some(Instant::now() + Duration::from_secs(1));
            }
            if self.report.is_some() {
                self.answer(listener);
            }
        }
    }

    /// Takes what the inside has to say; false once it will say no more.
    fn read_report(&mut self, lab: &OwnedFd) -> bool {
        loop {
            let mut buffer = [0; lab::MAX_REPORT];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let n = match net::recvmsg(lab, &mut parts, &mut control, RecvFlags::DONTWAIT) {
                Ok(message) if message.bytes == 0 => return false,
                Ok(message) => message.bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return true,
                Err(_) => return false,
            };
            let sender = control.drain().find_map(|m| match m {
                RecvAncillaryMessage::ScmCredentials(c) => Some(c.pid),
                _ => None,
            });
            match serde_json::from_slice(&buffer[..n]) {
                Ok(Report::Failed { step, cause }) => {
                    self.failure = Some(LabError::Setup { step, cause });
                }
                Ok(report) => self.report = sender.map(|pid| (pid, report)),
                Err(e) => self.failure = Some(LabError::setup("read the laboratory's report")(e)),
            }
        }
    }

    fn reap(self) -> Result<i32, LabError> {
        let status = process::waitid(WaitId::PidFd(self.init_fd.as_fd()), WaitIdOptions::EXITED)
            .map_err(LabError::setup("wait for the laboratory"))?;
        match (self.failure, status) {
            (Some(failure), _) => Err(failure),
            (None, Some(s)) => {
                let signal = s.terminating_signal().map(|n| 128 + n);
                Ok(s.exit_status().or(signal).unwrap_or(1))
            }
            (None, None) => Ok(1),
        }
    }

    /// Answers those who ask, one line each.
    fn answer(&self, listener: &UnixListener) {
        let Some((body, Report::Ready { run_dir, hosts })) = &self.report else { return };
        let init = self.init.as_raw_pid();
        let body = body.as_raw_pid();
        let info = LabInfo {
            name: self.name.into(),
            init_pid: init,
            user_namespace: self.user_namespace,
            run_dir: PathBuf::from(format!("/proc/{init}/root{}", run_dir.display())),
            hosts: hosts
                .iter()
                .map(|(name, fd)| (name.clone(), PathBuf::from(format!("/proc/{body}/fd/{fd}"))))
                .collect(),
        };
        while let Ok((mut stream, _)) = listener.accept() {
            // An asker that does not read, or left, is its own loss.
            let _ = stream.set_nonblocking(true);
            let _ = serde_json::to_string(&info)
                .map_err(io::Error::other)
                .and_then(|line| stream.write_all(format!("{line}\n").as_bytes()));
        }
    }
}

/// Pid 1 of the laboratory: builds, starts the body, reaps.
fn inside(name: &str, stop: Stop, keeper: OwnedFd, body: impl FnOnce(Lab) -> i32) -> ! {
    let run_dir = match build(&keeper) {
        Ok(run_dir) => run_dir,
        Err(e) => {
            let (step, cause) = match e {
                LabError::Setup { step, cause } => (step, cause),
                other => ("build the laboratory".into(), other.to_string()),
            };
            let _ = lab::send(&keeper, &Report::Failed { step, cause });
            namespace::exit_now(1);
        }
    };
    match namespace::fork() {
        Ok(Fork::Child) => {
            let status =
                catch_unwind(AssertUnwindSafe(|| match Lab::new(name.into(), run_dir, stop, keeper) {
                    Ok(lab) => body(lab),
                    Err(e) => {
                        eprintln!("laboratory {name}: {e}");
                        1
                    }
                }))
                .unwrap_or(101);
            std::process::exit(status)
        }
        Ok(Fork::Parent(child)) => {
            drop(keeper);
            reap_until(child)
        }
        Err(e) => {
            let report = Report::Failed { step: "fork".into(), cause: e.to_string() };
            let _ = lab::send(&keeper, &report);
            namespace::exit_now(1)
        }
    }
}

/// Reaps orphans until the body ends; leaving ends all others in the pid namespace.
fn reap_until(body: Pid) -> ! {
    loop {
        match process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == body => {
                let signal = status.terminating_signal().map(|n| 128 + n);
                namespace::exit_now(status.exit_status().or(signal).unwrap_or(1))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => namespace::exit_now(1),
        }
    }
}

/// Namespaces and mounts; gives the run directory.
fn build(keeper: &OwnedFd) -> Result<PathBuf, LabError> {
    process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(LabError::setup("tie the laboratory to its keeper"))?;
    // The keeper may have died before the line above: then its end of the pair is closed.
    let mut fds = [PollFd::new(keeper, PollFlags::IN)];
    poll(&mut fds, Some(&timespec(Duration::ZERO))).map_err(LabError::setup("see the keeper"))?;
    if fds[0].revents().contains(PollFlags::HUP) {
        namespace::exit_now(1);
    }
    // Keys pressed at the terminal go to the keeper, which tells the body in an orderly way.
    process::setsid().map_err(LabError::setup("start a session"))?;
    namespace::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS).map_err(forbidden)?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(LabError::setup("make mounts private"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(LabError::setup(
        "mount /proc (a container that masks parts of it forbids that: run it privileged)",
    ))?;
    let run_dir = run_dir()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("softdpu-lab", &run_dir, "tmpfs", flags, c"mode=0700")
        .map_err(LabError::setup(format!("mount a tmpfs on {}", run_dir.display())))?;
    Ok(run_dir)
}

/// An empty directory to mount on: `/run/softdpu-lab`, or one under `/tmp` for ordinary users.
fn run_dir() -> Result<PathBuf, LabError> {
    // Inside a user namespace the outer owner's files belong to uid 0.
    let own = |path: &Path| {
        let made = fs::DirBuilder::new().mode(0o700).create(path);
        match (made, fs::symlink_metadata(path)) {
            (_, Ok(m)) if m.is_dir() && m.uid() == process::geteuid().as_raw() => Ok(()),
            (Err(e), _) | (_, Err(e)) => Err(e),
            _ => Err(io::Error::other("it is not a directory of this user")),
        }
    };
    let first = PathBuf::from("/run/softdpu-lab");
    if own(&first).is_ok() {
        return Ok(first);
    }
    // The name carries the outer uid, which this side sees as the directory's owner only.
    let outer = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let uid = outer.split_whitespace().nth(1).unwrap_or("0");
    let second = std::env::temp_dir().join(format!("softdpu-lab-{uid}"));
    own(&second).map_err(LabError::setup(format!("make the run directory {}", second.display())))?;
    Ok(second)
}
