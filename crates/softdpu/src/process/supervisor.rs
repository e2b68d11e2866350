//! The supervisor: starts device and controller, restarts what dies, and ends both when it is told to. If it is killed itself, the
//! device goes on forwarding; the next supervisor adopts it.

use crate::args::RunArgs;
use crate::failure::{Failure, Result};
use crate::place::{self, Lock, holder};
use crate::process::{CONTROLLER_LOCK, DEVICE_LOCK, SUPERVISOR_LOCK, fixed, load, stop_flag};
use model::Config;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(100);
/// A process that should end has this long.
const GRACE: Duration = Duration::from_secs(5);
/// A process that comes up has this long.
const START: Duration = Duration::from_secs(10);
/// Restarts of the device within [`RESTART_WINDOW`] before we give up.
const RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_secs(30);
/// Before the second restart of a controller that lives no longer than that; it doubles with each one.
const PAUSE: Duration = Duration::from_secs(1);

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
        let mut killed = false;
        while !self.ended() {
            if start.elapsed() > GRACE && !killed {
                let _ = pidfd_send_signal(&self.fd, Signal::KILL);
                killed = true;
            }
            if start.elapsed() > 2 * GRACE {
                eprintln!("the {} does not end, killed though it was", self.name);
                return;
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
    // Anybody may come in to ask; the control sockets are for the owner by their own modes.
    place::make_directory(run_dir, 0o755)?;
    let state_dir = args.state_dir.clone().unwrap_or_else(place::default_state_dir);
    place::make_directory(&state_dir, 0o700)?;
    let _lock = Lock::take(run_dir, SUPERVISOR_LOCK)?;
    let stop = stop_flag()?;
    let plan = Plan { config: absolute(&args.config)?, run_dir: run_dir.into(), state_dir };

    let (mut device, ours) = match adopt(&config, run_dir)? {
        Some(device) => (device, false),
        None => (plan.start_device(&stop)?, true),
    };
    if let Some(pid) = holder(run_dir, CONTROLLER_LOCK) {
        Watched::adopt("controller", pid)?.end();
    }
    let mut controller = match plan.start_controller(true).and_then(|c| plan.wait_for(c, "controller", &stop))
    {
        Ok(controller) => controller,
        Err(failure) => {
            if ours {
                device.end();
            }
            return Err(failure);
        }
    };
    println!("softdpu runs, sockets in {}", run_dir.display());

    let mut restarts = Vec::new();
    let (mut started, mut pause) = (Instant::now(), Duration::ZERO);
    let result = loop {
        if stop.load(Relaxed) {
            break Ok(());
        }
        std::thread::sleep(LOOK);
        if device.ended() {
            eprintln!("the device ended; it is started again");
            match plan.start_device(&stop) {
                Ok(new) => device = new,
                Err(failure) => break Err(failure),
            }
            restarts.push(Instant::now());
            restarts.retain(|t| t.elapsed() < RESTART_WINDOW);
            if restarts.len() > RESTARTS {
                break Err(Failure::new(format!(
                    "{} restarts of the device within {} s: given up; the messages above say why",
                    restarts.len(),
                    RESTART_WINDOW.as_secs()
                )));
            }
        }
        // Without a controller the device goes on, so this is never given up.
        if controller.ended() && started.elapsed() >= pause {
            eprintln!("the controller ended; it is started again, traffic goes on");
            let lived = started.elapsed() > RESTART_WINDOW;
            pause = if lived { Duration::ZERO } else { (2 * pause).clamp(PAUSE, RESTART_WINDOW) };
            started = Instant::now();
            match plan.start_controller(false) {
                Ok(new) => controller = new,
                Err(failure) => eprintln!("{}", failure.message),
            }
        }
    };
    controller.end();
    device.end();
    result
}

/// The device that runs already, if there is one. It must be what the configuration says.
fn adopt(config: &Config, run_dir: &Path) -> Result<Option<Watched>> {
    let start = Instant::now();
    loop {
        let Some(pid) = holder(run_dir, DEVICE_LOCK) else { return Ok(None) };
        let device = Watched::adopt("device", pid);
        match device.and_then(|device| fixed::check(config, run_dir).map(|()| device)) {
            Ok(device) => {
                println!("adopted the device that was running (process {})", pid.as_raw_nonzero());
                return Ok(Some(device));
            }
            // It may be about to end, and let go of its lock in a moment.
            Err(_) if start.elapsed() < LOOK => std::thread::sleep(Duration::from_millis(5)),
            Err(failure) => return Err(failure),
        }
    }
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
        let device = Watched::start("device", self.command("device")?)?;
        self.wait_for(device, "query", stop)
    }

    /// Waits until a process answers at its socket; one that does not is ended.
    fn wait_for(&self, mut process: Watched, socket: &str, stop: &AtomicBool) -> Result<Watched> {
        let start = Instant::now();
        let socket = self.run_dir.join(socket).with_extension("sock");
        while UnixStream::connect(&socket).is_err() {
            if process.ended() {
                // It has said why.
                return Err(Failure { message: String::new(), status: 1 });
            }
            let why = match stop.load(Relaxed) {
                true => "was told to stop before it came up".to_owned(),
                false if start.elapsed() > START => format!("did not come up within {} s", START.as_secs()),
                false => {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
            };
            let name = process.name;
            process.end();
            return Err(Failure::new(format!("the {name} {why}")));
        }
        Ok(process)
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
