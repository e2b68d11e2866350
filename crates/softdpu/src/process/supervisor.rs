//! The supervisor: starts device and controller, restarts what dies, and ends both when it is told to. If it is killed itself, the
//! device goes on forwarding; the next supervisor adopts it.

use crate::args::RunArgs;
use crate::failure::{Failure, Result};
use crate::place::{self, Lock, holder};
use crate::process::{CONTROLLER_LOCK, DEVICE_LOCK, SUPERVISOR_LOCK, load, stop_flag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);
/// A process that should end has this long.
const GRACE: Duration = Duration::from_secs(5);
/// A device that comes up has this long.
const START: Duration = Duration::from_secs(10);
/// Restarts within [`RESTART_WINDOW`] before we give up.
const RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(30);

/// A process that is watched: ours, or one that was there.
struct Watched {
    name: &'static str,
    fd: OwnedFd,
    child: Option<Child>,
}

impl Watched {
    fn adopt(name: &'static str, pid: Pid) -> Result<Self> {
        let fd = pidfd_open(pid, PidfdFlags::empty()).map_err(|e| {
            Failure::new(format!("the {name} (process {}) cannot be watched: {e}", pid.as_raw_nonzero()))
        })?;
        Ok(Watched { name, fd, child: None })
    }

    fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| Failure::new(format!("the {name} cannot be started: {e}")))?;
        let mut watched = Watched::adopt(name, Pid::from_child(&child))?;
        watched.child = Some(child);
        Ok(watched)
    }

    /// Whether it has ended.
    fn ended(&mut self) -> bool {
        let readable = PollFd::new(&self.fd, PollFlags::IN);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ended = poll(&mut [readable], Some(&zero)).is_ok_and(|n| n > 0);
        if ended && let Some(child) = &mut self.child {
            let _ = child.wait();
        }
        ended
    }

    /// Asks it to end, and after [`GRACE`] makes it.
    fn end(mut self) {
        let _ = pidfd_send_signal(&self.fd, Signal::TERM);
        let start = Instant::now();
        while !self.ended() {
            if start.elapsed() > GRACE {
                let _ = pidfd_send_signal(&self.fd, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs until SIGINT or SIGTERM.
pub fn main(args: &RunArgs, run_dir: &Path) -> Result {
    let config = load(&args.config)?;
    for warning in &config.warnings {
        eprintln!("{warning}");
    }
    place::make_private(run_dir)?;
    let state_dir = args.state_dir.clone().unwrap_or_else(place::default_state_dir);
    place::make_private(&state_dir)?;
    let _lock = Lock::take(run_dir, SUPERVISOR_LOCK)?;
    let stop = stop_flag()?;
    let plan = Plan { config: absolute(&args.config)?, run_dir: run_dir.into(), state_dir };

    let mut device = match holder(run_dir, DEVICE_LOCK) {
        Some(pid) => {
            println!("adopted the device that was running (process {})", pid.as_raw_nonzero());
            Watched::adopt("device", pid)?
        }
        None => plan.start_device(&stop)?,
    };
    if let Some(pid) = holder(run_dir, CONTROLLER_LOCK) {
        Watched::adopt("controller", pid)?.end();
    }
    let mut controller = plan.start_controller(true)?;
    println!("softdpu runs, sockets in {}", run_dir.display());

    let mut restarts = Vec::new();
    let result = loop {
        if stop.load(Relaxed) {
            break Ok(());
        }
        std::thread::sleep(LOOK);
        let restarted = if device.ended() {
            eprintln!("the device ended; it is started again");
            plan.start_device(&stop).map(|new| device = new)
        } else if controller.ended() {
            eprintln!("the controller ended; it is started again, traffic goes on");
            plan.start_controller(false).map(|new| controller = new)
        } else {
            continue;
        };
        if let Err(failure) = restarted {
            break Err(failure);
        }
        restarts.push(Instant::now());
        restarts.retain(|t| t.elapsed() < RESTART_WINDOW);
        if restarts.len() > RESTARTS {
            break Err(Failure::new(format!(
                "{} restarts within {} s: given up; the messages above say why",
                restarts.len(),
                RESTART_WINDOW.as_secs()
            )));
        }
    };
    controller.end();
    device.end();
    result
}

struct Plan {
    config: PathBuf,
    run_dir: PathBuf,
    state_dir: PathBuf,
}

impl Plan {
    fn command(&self, name: &str) -> Result<Command> {
        let program = std::env::current_exe().map_err(Failure::new)?;
        let mut command = Command::new(program);
        command.arg("--run-dir").arg(&self.run_dir).arg(name).arg("--config").arg(&self.config);
        Ok(command)
    }

    /// Starts the device and waits until it answers.
    fn start_device(&self, stop: &AtomicBool) -> Result<Watched> {
        let mut device = Watched::start("device", self.command("device")?)?;
        let start = Instant::now();
        let socket = self.run_dir.join("query.sock");
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            if device.ended() {
                // It has said why.
                return Err(Failure { message: String::new(), status: 1 });
            }
            if start.elapsed() > START || stop.load(Relaxed) {
                device.end();
                return Err(Failure::new(format!("the device did not come up within {} s", START.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(device)
    }

    fn start_controller(&self, apply: bool) -> Result<Watched> {
        let mut command = self.command("controller")?;
        command.arg("--state-dir").arg(&self.state_dir);
        if apply {
            command.arg("--apply");
        }
        Watched::start("controller", command)
    }
}

/// Ends whatever runs in a directory: the supervisor with all, or a device that it left behind.
pub fn stop(run_dir: &Path) -> Result {
    let mut any = false;
    for (name, lock) in
        [("supervisor", SUPERVISOR_LOCK), ("controller", CONTROLLER_LOCK), ("device", DEVICE_LOCK)]
    {
        if let Some(pid) = holder(run_dir, lock) {
            let watched = Watched::adopt(name, pid)?;
            println!("stopping the {} (process {})", watched.name, pid.as_raw_nonzero());
            watched.end();
            any = true;
        }
    }
    if any { Ok(()) } else { Err(Failure::new(format!("nothing runs in {}", run_dir.display()))) }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Failure::new(format!("{}: {e}", path.display())))
}
