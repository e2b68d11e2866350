//! The controller's process: the controller, its connection to the device, and its own socket.

use crate::args::ControllerArgs;
use crate::failure::{Failure, Result};
use crate::place::Lock;
use crate::process::{CONTROLLER_LOCK, load, stop_flag};
use control::api::{ApiAnswer, ApiRequest, Ticket};
use control::{Controller, Options, RemoteDevice};
use device::run::monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Embedded;

/// Connections at once.
const CONNECTIONS: usize = 32;
/// The longest request, bytes: a configuration of a large device.
const MAX_REQUEST: usize = 64 << 20;
/// The longest sleep while nothing is under way, and while something is.
const SLEEP: Duration = Duration::from_millis(50);
const BUSY_SLEEP: Duration = Duration::from_millis(1);
/// How long the device may take to say what it can do.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two tries to reach the device.
const RECONNECT: u64 = 50_000_000;

/// Runs the controller until it is told to stop, or its supervisor ends.
pub fn main(args: &ControllerArgs, run_dir: &Path) -> Result {
    // The supervisor that started us watches us; without it nobody would.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failure::new)?;
    let _lock = Lock::take(run_dir, CONTROLLER_LOCK)?;
    let stop = stop_flag()?;
    let store = Embedded::open(args.state_dir.join("controller.redb")).map_err(Failure::new)?;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mut controller =
        Controller::open(store, Options::default(), monotonic(), wall).map_err(Failure::new)?;
    if args.apply {
        make_desired(&mut controller, &args.config)?;
    }
    let mut server = Server::open(&run_dir.join("controller.sock"))?;
    let mut link = Link { socket: run_dir.join("device.sock"), device: None, retry_at: 0 };
    while !stop.load(Relaxed) {
        link.drive(&mut controller);
        let waiting = server.serve(&mut controller);
        link.drive(&mut controller);
        let sleep = if waiting || !controller.is_settled() { BUSY_SLEEP } else { SLEEP };
        server.wait(&link, sleep);
    }
    Ok(())
}

/// Makes the file the desired state, unless it is already.
fn make_desired(controller: &mut Controller<Embedded>, file: &Path) -> Result {
    load(file)?;
    let text = std::fs::read_to_string(file).map_err(|e| Failure::new(format!("{}: {e}", file.display())))?;
    if controller.current().is_some_and(|revision| revision.text == text) {
        return Ok(());
    }
    let file = file.display().to_string();
    let request = ApiRequest::Apply { text, file, author: "run".into(), dry_run: false };
    let ticket = controller.ask(request, monotonic());
    match controller.answer(&ticket) {
        Some(ApiAnswer::Error(lines)) => Err(Failure::new(lines.join("\n"))),
        _ => Ok(()),
    }
}

/// The connection to the device, made anew whenever it is lost.
struct Link {
    socket: PathBuf,
    device: Option<RemoteDevice>,
    retry_at: u64,
}

impl Link {
    fn drive(&mut self, controller: &mut Controller<Embedded>) {
        let now = monotonic();
        if self.device.is_none() && now >= self.retry_at {
            self.device = RemoteDevice::connect(&self.socket, PATIENCE).ok();
            self.retry_at = now + RECONNECT;
        }
        if let Some(device) = &mut self.device
            && let Err(gone) = controller.poll(device, now)
        {
            eprintln!("the device is lost ({gone}); the controller waits for it");
            self.device = None;
        }
    }
}

struct Client {
    stream: UnixStream,
    request: Vec<u8>,
    out: Vec<u8>,
    ticket: Option<Ticket>,
    open: bool,
}

/// The controller's own socket: one JSON request a line, one JSON answer a line.
struct Server {
    listener: UnixListener,
    clients: Vec<Client>,
}

impl Server {
    fn open(path: &Path) -> Result<Self> {
        let listen = || -> io::Result<UnixListener> {
            match std::fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener = listen().map_err(|e| Failure::new(format!("socket {}: {e}", path.display())))?;
        Ok(Server { listener, clients: Vec::new() })
    }

    /// Takes requests and gives answers; whether one is still awaited.
    fn serve(&mut self, controller: &mut Controller<Embedded>) -> bool {
        while self.clients.len() < CONNECTIONS
            && let Ok((stream, _)) = self.listener.accept()
        {
            if stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    request: Vec::new(),
                    out: Vec::new(),
                    ticket: None,
                    open: true,
                });
            }
        }
        self.clients.iter_mut().for_each(|client| client.serve(controller));
        self.clients.retain(|client| client.open);
        self.clients.iter().any(|client| client.ticket.is_some())
    }

    fn wait(&self, link: &Link, timeout: Duration) {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.clients.iter().map(|client| PollFd::new(&client.stream, PollFlags::IN)));
        let device = link.device.as_ref().map(AsFd::as_fd);
        fds.extend(device.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let _ = poll(&mut fds, Some(&timeout));
    }
}

impl Client {
    fn serve(&mut self, controller: &mut Controller<Embedded>) {
        self.read();
        loop {
            if let Some(ticket) = &self.ticket {
                let Some(answer) = controller.answer(ticket) else { break };
                self.ticket = None;
                self.say(&answer);
            }
            let Some(end) = self.request.iter().position(|&b| b == b'\n') else { break };
            let line: Vec<u8> = self.request.drain(..=end).collect();
            match serde_json::from_slice::<ApiRequest>(&line) {
                Ok(request) => self.ticket = Some(controller.ask(request, monotonic())),
                Err(e) => self.say(&ApiAnswer::Error(vec![format!("the request is not understood: {e}")])),
            }
        }
        self.write();
    }

    fn read(&mut self) {
        let mut buffer = [0; 1 << 16];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.open = false,
                Ok(n) if self.request.len() + n > MAX_REQUEST => self.open = false,
                Ok(n) => {
                    self.request.extend_from_slice(&buffer[..n]);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.open = false,
            }
            return;
        }
    }

    fn say(&mut self, answer: &ApiAnswer) {
        match serde_json::to_vec(answer) {
            Ok(bytes) => {
                self.out.extend(bytes);
                self.out.push(b'\n');
            }
            Err(_) => self.open = false,
        }
    }

    fn write(&mut self) {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(n) if n > 0 => {
                    self.out.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    self.open = false;
                    return;
                }
            }
        }
    }
}
