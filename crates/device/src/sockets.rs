//! The device's two sockets: `device.sock` for its controller, `query.sock` for anybody who may read.

use crate::command_queue::{Asker, SoftDevice};
use crate::query::Pending;
use crate::run::{RunError, timespec};
use contract::Device;
use contract::codec::{Decoder, Request, Response, encode};
use contract::report::{Answer, Query};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Connections at once, of each kind.
const CONNECTIONS: usize = 32;
/// The longest question, bytes.
const MAX_QUESTION: usize = 1 << 20;
/// Answers that a controller may leave unread, bytes; then its commands wait.
const MAX_UNREAD: usize = 16 << 20;

/// A stream that never blocks, with what is still to be written.
struct Stream {
    stream: UnixStream,
    out: Vec<u8>,
    open: bool,
}

impl Stream {
    /// Reads what is there; whether anything was.
    fn read(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        let mut buffer = [0; 1 << 16];
        let mut any = false;
        // A few reads in a turn, so that one peer does not hold up the others.
        for _ in 0..8 {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.open = false,
                Ok(n) => {
                    any = true;
                    take(&buffer[..n]);
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => self.open = false,
            }
            break;
        }
        any
    }

    /// Writes what it can.
    fn flush(&mut self) {
        let mut written = 0;
        while written < self.out.len() {
            match self.stream.write(&self.out[written..]) {
                Ok(n) if n > 0 => written += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                _ => {
                    self.open = false;
                    break;
                }
            }
        }
        self.out.drain(..written);
    }
}

struct Controller {
    stream: Stream,
    decoder: Decoder,
    asker: Asker,
}

struct Reader {
    stream: Stream,
    question: Vec<u8>,
    pending: Option<Pending>,
}

/// Both listeners and who is connected.
pub struct Sockets {
    control: UnixListener,
    query: UnixListener,
    controllers: Vec<Controller>,
    readers: Vec<Reader>,
    accepted: u64,
}

impl Sockets {
    /// Listens in a directory that belongs to this device alone; a socket left there by a dead one is replaced.
    pub fn open(directory: &Path) -> Result<Self, RunError> {
        let listen = |name: &str, mode: u32| {
            let path = directory.join(name);
            let listen = || -> io::Result<UnixListener> {
                if UnixStream::connect(&path).is_ok() {
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, "another device is listening here"));
                }
                match std::fs::remove_file(&path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                    _ => {}
                }
                let listener = UnixListener::bind(&path)?;
                std::fs::set_permissions(&path, Permissions::from_mode(mode))?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            };
            listen().map_err(|source| RunError::Socket { path: path.display().to_string(), source })
        };
        Ok(Sockets {
            control: listen("device.sock", 0o600)?,
            query: listen("query.sock", 0o666)?,
            controllers: Vec::new(),
            readers: Vec::new(),
            accepted: 0,
        })
    }

    /// Reads, hands over, answers; whether an answer is still awaited.
    pub fn serve(&mut self, device: &mut SoftDevice) -> bool {
        self.accept(device);
        let mut busy = self.serve_controllers(device);
        let connected = self.controllers.iter().any(|c| c.asker == device.holder());
        for reader in &mut self.readers {
            reader.serve(device, connected);
            busy |= reader.pending.is_some();
        }
        self.controllers.retain(|c| c.stream.open);
        self.readers.retain(|r| r.stream.open);
        busy
    }

    fn accept(&mut self, device: &SoftDevice) {
        let stream = |s: UnixStream| {
            s.set_nonblocking(true).ok()?;
            Some(Stream { stream: s, out: Vec::new(), open: true })
        };
        while self.controllers.len() < CONNECTIONS
            && let Ok((s, _)) = self.control.accept()
        {
            if let Some(mut stream) = stream(s) {
                encode(&Response::Capabilities(device.capabilities().clone()), &mut stream.out);
                self.accepted += 1;
                self.controllers.push(Controller {
                    stream,
                    decoder: Decoder::default(),
                    asker: Asker(self.accepted),
                });
            }
        }
        while self.readers.len() < CONNECTIONS
            && let Ok((s, _)) = self.query.accept()
        {
            if let Some(stream) = stream(s) {
                self.readers.push(Reader { stream, question: Vec::new(), pending: None });
            }
        }
    }

    fn serve_controllers(&mut self, device: &mut SoftDevice) -> bool {
        let mut busy = false;
        for controller in &mut self.controllers {
            if controller.stream.out.len() < MAX_UNREAD {
                let decoder = &mut controller.decoder;
                busy |= controller.stream.read(|bytes| decoder.push(bytes));
            }
            loop {
                match controller.decoder.pop::<Request>() {
                    Ok(Some(request)) => {
                        device.take(controller.asker, request.session, request.id, request.command);
                    }
                    Ok(None) => break,
                    Err(_) => {
                        controller.stream.open = false;
                        break;
                    }
                }
            }
        }
        while let Some((asker, completion)) = device.completed() {
            let to = self.controllers.iter_mut().find(|c| c.asker == asker);
            if let Some(controller) = to {
                encode(&Response::Completion(completion), &mut controller.stream.out);
            }
        }
        self.controllers.iter_mut().for_each(|c| c.stream.flush());
        busy
    }

    /// Sleeps until somebody speaks.
    pub fn wait(&self, timeout: Duration) {
        let mut fds = vec![self.control.as_fd(), self.query.as_fd()];
        fds.extend(self.controllers.iter().map(|c| c.stream.stream.as_fd()));
        fds.extend(self.readers.iter().map(|r| r.stream.stream.as_fd()));
        let mut fds: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&timespec(timeout)));
    }
}

impl Reader {
    fn serve(&mut self, device: &SoftDevice, controller: bool) {
        let question = &mut self.question;
        self.stream.read(|bytes| question.extend_from_slice(bytes));
        if self.question.len() > MAX_QUESTION {
            self.stream.open = false;
            return;
        }
        loop {
            if let Some(pending) = &mut self.pending {
                let Some(mut answer) = device.answer_to(pending) else { break };
                if let Answer::Status(status) = &mut answer {
                    status.controller = controller;
                }
                self.pending = None;
                self.say(&answer);
            }
            let Some(end) = self.question.iter().position(|&b| b == b'\n') else { break };
            let line: Vec<u8> = self.question.drain(..=end).collect();
            match serde_json::from_slice::<Query>(&line) {
                Ok(query) => self.pending = Some(device.query(query)),
                Err(e) => self.say(&Answer::Error(format!("the question is not understood: {e}"))),
            }
        }
        self.stream.flush();
    }

    fn say(&mut self, answer: &Answer) {
        match serde_json::to_vec(answer) {
            Ok(mut bytes) => {
                bytes.push(b'\n');
                self.stream.out.extend(bytes);
            }
            Err(_) => self.stream.open = false,
        }
    }
}
