//! The threads of a device, and its sockets.
//!
//! One thread for each worker and each host path; management runs on the calling thread: it serves the control socket,
//! where the controller writes, and the read-only socket, where anybody may ask.

use crate::command_queue::SoftDevice;
use crate::host_path::HostPath;
use crate::sockets::Sockets;
use crate::worker::Worker;
use rustix::event::epoll;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Polls without work before a thread goes to sleep.
const IDLE_POLLS: u32 = 64;
/// The longest sleep of a thread: sweeps want their turn.
const SLEEP: Duration = Duration::from_millis(100);
/// How long management sleeps while answers of other threads are awaited.
const AWAIT: Duration = Duration::from_micros(500);

/// How the threads are placed.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// A CPU for each worker; empty: wherever the kernel likes.
    pub workers: Vec<usize>,
    /// A CPU for each host path thread.
    pub host_paths: Vec<usize>,
}

/// Why a device cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A socket cannot be made.
    #[error("socket {path}: {source}")]
    Socket {
        /// Its path.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("thread {name}: {source}")]
    Thread {
        /// Its name.
        name: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Time since an arbitrary start, ns, monotonic.
pub fn monotonic() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Runs a device until `stop` is set: `device.sock` (for the controller, owner only) and `query.sock` (read-only) in
/// `directory`. `ready` is called once both listen and the threads run.
///
/// # Errors
/// [`RunError`] if a socket or a thread cannot be had; nothing runs then.
pub fn run(
    mut device: SoftDevice,
    workers: Vec<Worker>,
    host_paths: Vec<HostPath>,
    directory: &Path,
    placement: &Placement,
    stop: &Arc<AtomicBool>,
    ready: impl FnOnce(),
) -> Result<(), RunError> {
    let mut sockets = Sockets::open(directory)?;
    let shared = device.shared().clone();
    let halt = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for (n, worker) in workers.into_iter().enumerate() {
        let (cpu, halt) = (placement.workers.get(n).copied(), halt.clone());
        threads.push(spawn(worker.board().name.clone(), move || worker_loop(worker, cpu, &halt))?);
    }
    for (n, host_path) in host_paths.into_iter().enumerate() {
        let (cpu, halt) = (placement.host_paths.get(n).copied(), halt.clone());
        threads.push(spawn(host_path.board().name.clone(), move || host_path_loop(host_path, cpu, &halt))?);
    }
    ready();
    while !stop.load(Relaxed) {
        device.poll(monotonic());
        let busy = sockets.serve(&mut device);
        sockets.wait(if busy || device.is_busy() { AWAIT } else { SLEEP });
    }
    halt.store(true, Relaxed);
    shared.boards.iter().for_each(|board| board.wake.wake());
    for thread in threads {
        // A thread that panicked has said so on stderr.
        let _ = thread.join();
    }
    Ok(())
}

fn spawn(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, RunError> {
    std::thread::Builder::new()
        .name(name.clone())
        .spawn(body)
        .map_err(|source| RunError::Thread { name, source })
}

fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        // A CPU that is not ours to use leaves the thread where the kernel puts it.
        let _ = sched_setaffinity(None, &set);
    }
}

fn worker_loop(mut worker: Worker, cpu: Option<usize>, halt: &AtomicBool) {
    pin(cpu);
    let must_poll = worker.must_poll();
    let Ok(sleeper) = Sleeper::new(&worker) else { return };
    let mut idle = 0;
    while !halt.load(Relaxed) {
        if worker.poll(monotonic()) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < IDLE_POLLS || must_poll {
            std::hint::spin_loop();
            continue;
        }
        worker.board().wake.prepare();
        if !worker.poll(monotonic()) {
            sleeper.sleep();
        }
        worker.board().wake.awake();
        idle = 0;
    }
}

fn host_path_loop(mut host_path: HostPath, cpu: Option<usize>, halt: &AtomicBool) {
    pin(cpu);
    let mut idle = 0;
    while !halt.load(Relaxed) {
        if host_path.poll(monotonic()) {
            idle = 0;
            continue;
        }
        idle += 1;
        if idle < IDLE_POLLS {
            std::hint::spin_loop();
            continue;
        }
        host_path.board().wake.prepare();
        if !host_path.poll(monotonic()) {
            let fd = host_path.board().wake.fd();
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timespec(SLEEP)));
        }
        host_path.board().wake.awake();
        idle = 0;
    }
}

/// Waits for any port of a worker, or for its wake-up.
struct Sleeper(std::os::fd::OwnedFd);

impl Sleeper {
    fn new(worker: &Worker) -> io::Result<Self> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for port in worker.wait_fds() {
            epoll::add(&fd, port, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        epoll::add(&fd, worker.board().wake.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Sleeper(fd))
    }

    fn sleep(&self) {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
        let _ = epoll::wait(&self.0, &mut events, Some(&timespec(SLEEP)));
    }
}

pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}
