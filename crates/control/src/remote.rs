//! A device in another process, behind a Unix stream. Nothing here blocks but [`RemoteDevice::connect`], which waits for the
//! device's capabilities.

use contract::codec::{Decoder, Request, Response, encode};
use contract::{Capabilities, Command, CommandId, Completion, Device, Session, SubmitError};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Bytes that may wait for the socket; beyond, commands are refused with `queue_full`.
const MAX_UNSENT: usize = 1 << 20;

/// The controller's end of the control socket.
#[derive(Debug)]
pub struct RemoteDevice {
    stream: UnixStream,
    capabilities: Capabilities,
    decoder: Decoder,
    unsent: Vec<u8>,
    session: Session,
    last: u64,
    gone: Option<String>,
}

impl RemoteDevice {
    /// Connects to the device's control socket and waits at most `patience` for its capabilities.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` if what answers is no device.
    pub fn connect(path: &Path, patience: Duration) -> std::io::Result<RemoteDevice> {
        RemoteDevice::start(UnixStream::connect(path)?, patience)
    }

    /// As [`connect`](RemoteDevice::connect), on a stream that is connected.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` if what answers is no device.
    pub fn start(mut stream: UnixStream, patience: Duration) -> std::io::Result<RemoteDevice> {
        stream.set_read_timeout(Some(patience))?;
        let mut decoder = Decoder::default();
        let mut bytes = [0; 4096];
        let capabilities = loop {
            let record = decoder.pop::<Response>();
            match record.map_err(|e| std::io::Error::new(ErrorKind::InvalidData, e))? {
                Some(Response::Capabilities(capabilities)) => break capabilities,
                Some(Response::Completion(_)) => {
                    let what = "the device did not begin with its capabilities";
                    return Err(std::io::Error::new(ErrorKind::InvalidData, what));
                }
                None => {}
            }
            match stream.read(&mut bytes)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => decoder.push(&bytes[..n]),
            }
        };
        stream.set_nonblocking(true)?;
        Ok(RemoteDevice {
            stream,
            capabilities,
            decoder,
            unsent: Vec::new(),
            session: Session(0),
            last: 0,
            gone: None,
        })
    }

    /// Whether bytes wait until the socket can take more: wait for it to become writable, too.
    pub fn wants_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() && self.gone.is_none() {
            match self.stream.write(&self.unsent) {
                Ok(0) => self.gone = Some("the connection was closed".to_owned()),
                Ok(n) => {
                    self.unsent.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.gone = Some(e.to_string()),
            }
        }
    }

    fn receive(&mut self) {
        let mut bytes = [0; 16384];
        while self.gone.is_none() {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.gone = Some("the device closed the connection".to_owned()),
                Ok(n) => {
                    self.decoder.push(&bytes[..n]);
                    if n < bytes.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => self.gone = Some(e.to_string()),
            }
        }
    }

    fn next(&mut self) -> Result<Option<Completion>, SubmitError> {
        loop {
            match self.decoder.pop::<Response>() {
                Ok(Some(Response::Completion(completion))) => return Ok(Some(completion)),
                Ok(Some(Response::Capabilities(capabilities))) => self.capabilities = capabilities,
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.gone = Some(error.to_string());
                    return Err(SubmitError::Gone(error.to_string()));
                }
            }
        }
    }
}

impl AsFd for RemoteDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Device for RemoteDevice {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, command: Command) -> Result<CommandId, SubmitError> {
        if let Some(why) = &self.gone {
            return Err(SubmitError::Gone(why.clone()));
        }
        if self.unsent.len() > MAX_UNSENT {
            return Err(SubmitError::QueueFull);
        }
        if let Command::Hello { session } = command {
            self.session = session;
        }
        self.last += 1;
        let id = CommandId(self.last);
        encode(&Request { id, session: self.session, command }, &mut self.unsent);
        self.flush();
        Ok(id)
    }

    fn poll(&mut self) -> Result<Option<Completion>, SubmitError> {
        self.flush();
        if let Some(completion) = self.next()? {
            return Ok(Some(completion));
        }
        self.receive();
        match (self.next()?, &self.gone) {
            (Some(completion), _) => Ok(Some(completion)),
            (None, Some(why)) => Err(SubmitError::Gone(why.clone())),
            (None, None) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::{Generation, Reply};

    fn device_side() -> (UnixStream, RemoteDevice) {
        let (mut device, controller) = UnixStream::pair().unwrap();
        let capabilities = Capabilities {
            program: "vnet".to_owned(),
            profile: "unlimited".to_owned(),
            tables: Vec::new(),
            queue: 4,
            atomic_commit: true,
        };
        let mut bytes = Vec::new();
        encode(&Response::Capabilities(capabilities), &mut bytes);
        device.write_all(&bytes).unwrap();
        let remote = RemoteDevice::start(controller, Duration::from_secs(5)).unwrap();
        (device, remote)
    }

    #[test]
    fn commands_go_under_the_session_of_the_last_hello_and_completions_come_back() {
        let (mut device, mut remote) = device_side();
        assert_eq!(remote.capabilities().queue, 4);
        remote.submit(Command::Hello { session: Session(9) }).unwrap();
        let id = remote.submit(Command::State).unwrap();
        assert!(!remote.wants_write());

        let mut decoder = Decoder::default();
        let mut bytes = [0; 1024];
        let mut requests: Vec<Request> = Vec::new();
        while requests.len() < 2 {
            let n = device.read(&mut bytes).unwrap();
            decoder.push(&bytes[..n]);
            while let Some(request) = decoder.pop().unwrap() {
                requests.push(request);
            }
        }
        assert_eq!(
            (requests[1].id, requests[1].session, &requests[1].command),
            (id, Session(9), &Command::State)
        );

        assert_eq!(remote.poll(), Ok(None));
        let completion = Completion { id, generation: Generation(1), outcome: Ok(Reply::Done) };
        let mut answer = Vec::new();
        encode(&Response::Completion(completion.clone()), &mut answer);
        let (start, end) = answer.split_at(5);
        device.write_all(start).unwrap();
        assert_eq!(remote.poll(), Ok(None), "half a record");
        device.write_all(end).unwrap();
        drop(device);
        assert_eq!(remote.poll(), Ok(Some(completion)), "what came before the end is not lost");
        assert!(matches!(remote.poll(), Err(SubmitError::Gone(_))));
        assert!(matches!(remote.submit(Command::State), Err(SubmitError::Gone(_))));
    }

    #[test]
    fn a_socket_that_takes_no_more_is_queue_full_and_nothing_is_lost() {
        let (mut device, mut remote) = device_side();
        let probe = Command::Probe { port: 0, frame: vec![7; 60_000] };
        let mut sent = 0;
        loop {
            match remote.submit(probe.clone()) {
                Ok(_) => sent += 1,
                Err(error) => {
                    assert_eq!(error, SubmitError::QueueFull);
                    break;
                }
            }
            assert!(sent < 1000, "never full");
        }
        assert!(remote.wants_write());
        let mut decoder = Decoder::default();
        let mut bytes = vec![0; 1 << 16];
        let mut seen = 0;
        while seen < sent {
            remote.poll().unwrap();
            let n = device.read(&mut bytes).unwrap();
            decoder.push(&bytes[..n]);
            while let Some(request) = decoder.pop::<Request>().unwrap() {
                seen += 1;
                assert_eq!((request.id.0, &request.command), (seen, &probe));
            }
        }
    }

    #[test]
    fn what_does_not_begin_with_capabilities_is_no_device() {
        let (mut other, controller) = UnixStream::pair().unwrap();
        other.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let error = RemoteDevice::start(controller, Duration::from_secs(5)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}
