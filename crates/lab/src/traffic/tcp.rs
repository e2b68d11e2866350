//! TCP: streams of content that a seed determines, with the digest of what was sent and received
//! compared at the end. The server answers the end of a stream with the length and the digest of
//! what arrived, so the sender knows that all was delivered whole.

use super::digest::{Content, Digest};
use super::series::Series;
use super::{Traffic, now};
use crate::error::LabError;
use crate::host::Host;
use crate::stop::{Stop, Wake};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of one write or read.
const CHUNK: usize = 128 * 1024;
/// Length and digest, big-endian.
const RECEIPT_LEN: usize = 16;

/// How much to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes.
    Bytes(u64),
    /// Until stopped, or the sender's `limit`; either ends the stream in an orderly way.
    UntilStopped,
}

/// A stream to send.
#[derive(Clone, Debug)]
pub struct TcpSend {
    /// Where to.
    pub target: SocketAddr,
    /// Source address and port; the kernel's choice without.
    pub source: Option<SocketAddr>,
    /// How much.
    pub amount: Amount,
    /// At most so many bytes per second; as fast as it goes without.
    pub rate: Option<u64>,
    /// What the content is made from.
    pub seed: u64,
    /// Time allowed for connecting.
    pub connect_timeout: Duration,
    /// Without any progress for this long the stream has failed.
    pub stall_timeout: Duration,
    /// It ends after this time at the latest.
    pub limit: Duration,
}

/// A stage of a stream's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpStage {
    /// The handshake.
    Connect,
    /// Sending content.
    Transfer,
    /// Waiting for the receipt after the end.
    Finish,
}

/// Why a stream failed. That is an observation, not an error of the laboratory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpFailure {
    /// In which stage.
    pub stage: TcpStage,
    /// What the kernel said; [`ErrorKind::TimedOut`] for no progress.
    pub kind: ErrorKind,
    /// When, ns of the monotonic clock.
    pub at: u64,
}

/// What a sender did.
#[derive(Clone, Debug)]
pub struct TcpSent {
    /// The address that it sent from.
    pub source: Option<SocketAddr>,
    /// When the handshake began, ns of the monotonic clock.
    pub began_at: u64,
    /// When it was done; `None` if it never was.
    pub connected_at: Option<u64>,
    /// When the receipt came, or the stream failed.
    pub ended_at: u64,
    /// Bytes handed to the kernel, and their digest.
    pub bytes: u64,
    /// See `bytes`.
    pub digest: u64,
    /// The receiver's count and digest, if the stream ended in an orderly way.
    pub receipt: Option<(u64, u64)>,
    /// Bytes handed to the kernel over time. Goodput is the receiver's series.
    pub series: Series,
    /// Why it failed, if it did.
    pub failure: Option<TcpFailure>,
}

impl TcpSent {
    /// Whether the receiver got every byte, each as it was sent.
    pub fn verified(&self) -> bool {
        self.receipt == Some((self.bytes, self.digest))
    }

    /// Delivered payload per second in bits, from the handshake's begin to the receipt.
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8e9 / self.ended_at.saturating_sub(self.began_at).max(1) as f64
    }
}

/// A sender under way.
#[derive(Debug)]
pub struct TcpSender {
    series: Series,
    traffic: Traffic<TcpSent>,
}

impl TcpSender {
    /// Bytes handed to the kernel over time, so far.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Whether it has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.traffic.is_finished()
    }

    /// Waits for its own end.
    ///
    /// # Errors
    /// The thread could not run.
    pub fn join(self) -> Result<TcpSent, LabError> {
        self.traffic.join()
    }

    /// Ends the stream: in an orderly way, with a receipt, if that comes within 1 s.
    ///
    /// # Errors
    /// The thread could not run.
    pub fn stop(self) -> Result<TcpSent, LabError> {
        self.traffic.stop()
    }
}

impl TcpSend {
    /// A stream as fast as it goes, seed 1, 5 s for connecting and for stalls, at most 60 s.
    pub fn new(target: SocketAddr, amount: Amount) -> Self {
        Self {
            target,
            source: None,
            amount,
            rate: None,
            seed: 1,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(5),
            limit: Duration::from_secs(60),
        }
    }

    /// Starts sending from `host`.
    ///
    /// # Errors
    /// The source can't be bound. A refused connection is a [`TcpFailure`] in the report.
    pub fn start(&self, host: &Host) -> Result<TcpSender, LabError> {
        let send = self.clone();
        let what = format!("send TCP from {} to {}", host.name(), self.target);
        let socket = host.run(|| send.socket())?.map_err(LabError::traffic(what))?;
        let series = Series::new(now());
        let its = series.clone();
        let traffic = Traffic::start(host, move |stop| Ok(send.run(socket, its, stop)))?;
        Ok(TcpSender { series, traffic })
    }

    fn socket(&self) -> io::Result<TcpStream> {
        let family = if self.target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
        if let Some(source) = self.source {
            net::bind(&socket, &source)?;
        }
        Ok(socket.into())
    }

    fn run(&self, mut socket: TcpStream, series: Series, stop: &Stop) -> TcpSent {
        let end = Instant::now() + self.limit;
        let mut sent = TcpSent {
            source: None,
            began_at: now(),
            connected_at: None,
            ended_at: 0,
            bytes: 0,
            digest: 0,
            receipt: None,
            series,
            failure: None,
        };
        let mut digest = Digest::new();
        let result = self
            .connect(&socket, end, stop)
            .map_err(|e| (TcpStage::Connect, e))
            .and_then(|()| {
                sent.connected_at = Some(now());
                sent.source = socket.local_addr().ok();
                let result = self.transfer(&mut socket, &mut digest, &sent.series, end, stop);
                result.map_err(|e| (TcpStage::Transfer, e))
            })
            .and_then(|()| {
                sent.receipt = Some(self.finish(&mut socket, stop).map_err(|e| (TcpStage::Finish, e))?);
                Ok(())
            });
        sent.ended_at = now();
        (sent.bytes, sent.digest) = (digest.len(), digest.value());
        sent.failure = result.err().map(|(stage, e)| TcpFailure { stage, kind: e.kind(), at: sent.ended_at });
        sent
    }

    fn connect(&self, socket: &TcpStream, end: Instant, stop: &Stop) -> io::Result<()> {
        match net::connect(socket, &self.target) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::INPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        let deadline = end.min(Instant::now() + self.connect_timeout);
        match stop.writable(socket, Some(deadline)) {
            Wake::Ready => net::sockopt::socket_error(socket)?.map_err(io::Error::from),
            Wake::TimedOut => Err(ErrorKind::TimedOut.into()),
            Wake::Stopped => Err(ErrorKind::Interrupted.into()),
        }
    }

    fn transfer(
        &self,
        socket: &mut TcpStream,
        digest: &mut Digest,
        series: &Series,
        end: Instant,
        stop: &Stop,
    ) -> io::Result<()> {
        let begin = Instant::now();
        let total = match self.amount {
            Amount::Bytes(n) => n,
            Amount::UntilStopped => u64::MAX,
        };
        // At a rate, ten writes or more a second; a chunk costs no more than its time.
        let most = self.rate.map_or(CHUNK, |r| (r / 100).clamp(1, CHUNK as u64) as usize);
        let mut content = Content::new(self.seed);
        let mut chunk = vec![0; most];
        let mut ready = 0..0;
        loop {
            if ready.is_empty() {
                let left = total - digest.len();
                if left == 0 {
                    return Ok(());
                }
                let next = most.min(usize::try_from(left).unwrap_or(most));
                content.fill(&mut chunk[..next]);
                ready = 0..next;
                let paced = self
                    .rate
                    .map(|rate| begin + Duration::from_secs_f64(digest.len() as f64 / rate.max(1) as f64));
                if stop.wait_until(Some(paced.unwrap_or(begin).min(end))) {
                    return self.stopped();
                }
            }
            if Instant::now() >= end {
                return self.stopped();
            }
            match socket.write(&chunk[ready.clone()]) {
                Ok(n) => {
                    digest.update(&chunk[ready.start..ready.start + n]);
                    ready.start += n;
                    series.record(now(), n as u64);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    let patience = Instant::now() + self.stall_timeout;
                    match stop.writable(&*socket, Some(patience.min(end))) {
                        Wake::Ready => {}
                        Wake::Stopped => return self.stopped(),
                        Wake::TimedOut if patience > end => return self.stopped(),
                        Wake::TimedOut => return Err(ErrorKind::TimedOut.into()),
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// The end by request or limit: as it should be for an endless stream only.
    fn stopped(&self) -> io::Result<()> {
        match self.amount {
            Amount::UntilStopped => Ok(()),
            Amount::Bytes(_) => Err(ErrorKind::Interrupted.into()),
        }
    }

    /// Ends the stream and reads the receipt.
    fn finish(&self, socket: &mut TcpStream, stop: &Stop) -> io::Result<(u64, u64)> {
        socket.shutdown(Shutdown::Write)?;
        // What is in flight may still arrive after a stop.
        let after_stop = Stop::new()?;
        let (stop, patience) =
            if stop.requested() { (&after_stop, Duration::from_secs(1)) } else { (stop, self.stall_timeout) };
        let deadline = Instant::now() + patience;
        let mut receipt = [0; RECEIPT_LEN];
        let mut have = 0;
        while have < RECEIPT_LEN {
            match socket.read(&mut receipt[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    match stop.readable(&*socket, Some(deadline)) {
                        Wake::Ready => {}
                        Wake::TimedOut => return Err(ErrorKind::TimedOut.into()),
                        Wake::Stopped => return Err(ErrorKind::Interrupted.into()),
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| receipt[at + i]));
        Ok((word(0), word(8)))
    }
}

/// What a server knows of one connection.
#[derive(Clone, Debug)]
pub struct TcpReceived {
    /// The sender's address.
    pub source: SocketAddr,
    /// When it was accepted, ns of the monotonic clock.
    pub accepted_at: u64,
    /// When its last byte came.
    pub last_at: u64,
    /// Bytes received, and their digest.
    pub bytes: u64,
    /// See `bytes`.
    pub digest: u64,
    /// Goodput over time.
    pub series: Series,
    /// Whether the sender ended the stream in an orderly way.
    pub complete: bool,
    /// What broke it, if something did.
    pub failure: Option<ErrorKind>,
}

/// A server that takes in any number of streams.
#[derive(Debug)]
pub struct TcpServer {
    address: SocketAddr,
    connections: Connections,
    traffic: Traffic<()>,
}

type Connections = Arc<Mutex<Vec<TcpReceived>>>;

impl TcpServer {
    /// Listens at `address` (port 0: the kernel's choice) in `host`; returns once it does.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn start(host: &Host, address: SocketAddr) -> Result<Self, LabError> {
        let what = || format!("serve TCP at {address} in {}", host.name());
        let listener = host.run(|| TcpListener::bind(address))?.map_err(LabError::traffic(what()))?;
        listener.set_nonblocking(true).map_err(LabError::traffic(what()))?;
        let address = listener.local_addr().map_err(LabError::traffic(what()))?;
        let connections = Connections::default();
        let its = Arc::clone(&connections);
        let traffic = Traffic::start(host, move |stop| {
            serve(&listener, &its, stop);
            Ok(())
        })?;
        Ok(Self { address, connections, traffic })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All connections so far, in the order of acceptance.
    pub fn connections(&self) -> Vec<TcpReceived> {
        locked(&self.connections).clone()
    }

    /// Ends it, and with it what is still connected.
    ///
    /// # Errors
    /// The thread could not run.
    pub fn stop(self) -> Result<Vec<TcpReceived>, LabError> {
        self.traffic.stop()?;
        Ok(locked(&self.connections).clone())
    }
}

fn locked(connections: &Connections) -> MutexGuard<'_, Vec<TcpReceived>> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(listener: &TcpListener, connections: &Connections, stop: &Stop) {
    thread::scope(|scope| {
        while stop.readable(listener, None) != Wake::Stopped {
            // A connection that failed before it was accepted is the sender's to report.
            let Ok((socket, source)) = listener.accept() else { continue };
            let index = {
                let now = now();
                let mut all = locked(connections);
                all.push(TcpReceived {
                    source,
                    accepted_at: now,
                    last_at: now,
                    bytes: 0,
                    digest: Digest::new().value(),
                    series: Series::new(now),
                    complete: false,
                    failure: None,
                });
                all.len() - 1
            };
            scope.spawn(move || {
                let result = take_in(socket, connections, index, stop);
                let mut all = locked(connections);
                match result {
                    Ok(complete) => all[index].complete = complete,
                    Err(e) => all[index].failure = Some(e.kind()),
                }
            });
        }
    });
}

/// Reads a stream to its end and sends the receipt; `Ok(false)` if stopped before.
fn take_in(mut socket: TcpStream, connections: &Connections, index: usize, stop: &Stop) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    let mut digest = Digest::new();
    let mut buffer = vec![0; 2 * CHUNK];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                digest.update(&buffer[..n]);
                let now = now();
                let mut all = locked(connections);
                let received = &mut all[index];
                received.series.record(now, n as u64);
                (received.last_at, received.bytes) = (now, digest.len());
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if stop.readable(&socket, None) == Wake::Stopped {
                    locked(connections)[index].digest = digest.value();
                    return Ok(false);
                }
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    locked(connections)[index].digest = digest.value();
    let receipt = [digest.len().to_be_bytes(), digest.value().to_be_bytes()].concat();
    // It fits into any send buffer.
    socket.write_all(&receipt)?;
    Ok(true)
}
