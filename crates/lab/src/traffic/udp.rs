//! UDP: senders of numbered datagrams at a rate, and receivers that account for each number and
//! echo on request.

use super::track::{HEADER_LEN, Numbered, StreamReport, Tracker};
use super::{Traffic, now};
use crate::error::LabError;
use crate::host::Host;
use crate::stop::{Stop, Wake};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A stream of numbered datagrams.
#[derive(Clone, Debug)]
pub struct UdpSend {
    /// Where to.
    pub target: SocketAddr,
    /// Source address and port; port 0 and the kernel's choice of address without.
    pub source: Option<SocketAddr>,
    /// The stream's name at the receiver.
    pub stream: u32,
    /// Bytes of UDP payload, at least 24.
    pub size: usize,
    /// Datagrams per second, at least 1.
    pub rate: u32,
    /// How many to send; until stopped (or `limit`) without.
    pub count: Option<u64>,
    /// It ends after this time at the latest.
    pub limit: Duration,
    /// Await echoes: after the last datagram for this long, or until all came.
    pub echo: Option<Duration>,
}

/// What a sender did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpSent {
    /// The address that it sent from.
    pub source: Option<SocketAddr>,
    /// Datagrams handed to the kernel: their numbers are `0..sent`.
    pub sent: u64,
    /// Time of the first and the last, ns of the monotonic clock.
    pub first_at: u64,
    /// See `first_at`.
    pub last_at: u64,
    /// Distinct echoes received.
    pub echoed: u64,
    /// Round trips of these, ns, in order of arrival.
    pub round_trips: Vec<u64>,
    /// Errors by name: refused sends, and ICMP errors that came back.
    pub errors: BTreeMap<String, u64>,
}

impl UdpSend {
    /// 64-byte datagrams, 1,000 a second, stream 0, until stopped or for 60 s, no echo awaited.
    pub fn new(target: SocketAddr) -> Self {
        Self {
            target,
            source: None,
            stream: 0,
            size: 64,
            rate: 1000,
            count: None,
            limit: Duration::from_secs(60),
            echo: None,
        }
    }

    /// Starts sending from `host`.
    ///
    /// # Errors
    /// The source can't be bound, or there is no route.
    pub fn start(&self, host: &Host) -> Result<Traffic<UdpSent>, LabError> {
        let send = self.clone();
        let socket = host.run(|| send.socket())?.map_err(LabError::traffic(format!(
            "send UDP from {} to {}",
            host.name(),
            self.target
        )))?;
        Traffic::start(host, move |stop| Ok(send.run(&socket, stop)))
    }

    fn socket(&self) -> io::Result<UdpSocket> {
        let any = SocketAddr::new(unspecified(self.target), 0);
        let socket = UdpSocket::bind(self.source.unwrap_or(any))?;
        socket.connect(self.target)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    fn run(&self, socket: &UdpSocket, stop: &Stop) -> UdpSent {
        let begin = Instant::now();
        let end = begin + self.limit;
        let gap = Duration::from_secs(1) / self.rate.max(1);
        let due = |n: u64| begin + Duration::from_nanos((gap.as_nanos() as u64).saturating_mul(n));
        let mut report = UdpSent { source: socket.local_addr().ok(), ..UdpSent::default() };
        let mut payload = vec![0; self.size.max(HEADER_LEN)];
        let mut echoes = Tracker::new(self.target, self.stream, now());
        // Attempts, refused ones included, keep the rate; numbers count what was sent.
        let mut attempts = 0;
        loop {
            let all_sent = self.count.is_some_and(|n| attempts >= n);
            let patience = self.echo.unwrap_or_default();
            let deadline = match all_sent {
                true if report.echoed >= report.sent || self.echo.is_none() => return report,
                true => end.min(due(attempts.saturating_sub(1)) + patience),
                false => end.min(due(attempts)),
            };
            let wake = match self.echo {
                Some(_) => stop.readable(socket, Some(deadline)),
                None if stop.wait_until(Some(deadline)) => Wake::Stopped,
                None => Wake::TimedOut,
            };
            match wake {
                Wake::Stopped => return report,
                Wake::TimedOut if all_sent || end <= Instant::now() => return report,
                Wake::TimedOut => {
                    self.send_one(socket, &mut payload, &mut report);
                    attempts += 1;
                }
                Wake::Ready => self.take_echo(socket, &mut echoes, &mut report),
            }
        }
    }

    fn send_one(&self, socket: &UdpSocket, payload: &mut [u8], report: &mut UdpSent) {
        let head = Numbered { stream: self.stream, sequence: report.sent, sent_at: now() };
        if let Some(first) = payload.first_chunk_mut() {
            head.write(first);
        }
        match socket.send(payload) {
            Ok(_) => {
                if report.sent == 0 {
                    report.first_at = head.sent_at;
                }
                report.sent += 1;
                report.last_at = head.sent_at;
            }
            Err(e) => *report.errors.entry(e.kind().to_string()).or_default() += 1,
        }
    }

    fn take_echo(&self, socket: &UdpSocket, echoes: &mut Tracker, report: &mut UdpSent) {
        let mut buffer = vec![0; self.size.max(HEADER_LEN)];
        match socket.recv(&mut buffer) {
            Ok(len) => {
                let ours = |n: &Numbered| n.stream == self.stream && n.sequence < report.sent;
                let Some(head) = Numbered::read(&buffer[..len]).filter(ours) else { return };
                let now = now();
                echoes.arrive(head.sequence, len as u64, now);
                let distinct = echoes.received();
                if distinct > report.echoed {
                    report.echoed = distinct;
                    report.round_trips.push(now.saturating_sub(head.sent_at));
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) => *report.errors.entry(e.kind().to_string()).or_default() += 1,
        }
    }
}

/// A socket that receives numbered datagrams from anyone, and tells the streams apart by source.
#[derive(Debug)]
pub struct UdpReceiver {
    address: SocketAddr,
    accounts: Accounts,
    traffic: Traffic<u64>,
}

type Accounts = Arc<Mutex<Account>>;

#[derive(Debug, Default)]
struct Account {
    streams: BTreeMap<(SocketAddr, u32), Tracker>,
    foreign: u64,
}

impl Account {
    fn arrive(&mut self, datagram: &[u8], source: SocketAddr) {
        let now = now();
        let counted = Numbered::read(datagram).is_some_and(|head| {
            let new = || Tracker::new(source, head.stream, now);
            let tracker = self.streams.entry((source, head.stream)).or_insert_with(new);
            tracker.arrive(head.sequence, datagram.len() as u64, now)
        });
        self.foreign += u64::from(!counted);
    }
}

impl UdpReceiver {
    /// Receives at `address` (port 0: the kernel's choice) in `host`; returns once it is bound.
    /// With `echo`, each datagram is sent back to where it came from.
    ///
    /// # Errors
    /// The address can't be bound.
    pub fn start(host: &Host, address: SocketAddr, echo: bool) -> Result<Self, LabError> {
        let what = || format!("receive UDP at {address} in {}", host.name());
        let socket = host.run(|| receiver_socket(address))?.map_err(LabError::traffic(what()))?;
        let address = socket.local_addr().map_err(LabError::traffic(what()))?;
        let accounts = Accounts::default();
        let its = Arc::clone(&accounts);
        let traffic = Traffic::start(host, move |stop| Ok(receive(&socket, echo, &its, stop)))?;
        Ok(Self { address, accounts, traffic })
    }

    /// Where it receives.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The streams so far, by source.
    pub fn streams(&self) -> Vec<StreamReport> {
        account(&self.accounts).streams.values().map(Tracker::report).collect()
    }

    /// Datagrams so far that no sender of ours wrote.
    pub fn foreign(&self) -> u64 {
        account(&self.accounts).foreign
    }

    /// Ends it; what was already queued at the socket is still counted. Gives the streams, and
    /// how many datagrams the kernel dropped at the socket for want of buffer space.
    ///
    /// # Errors
    /// The thread could not run.
    pub fn stop(self) -> Result<(Vec<StreamReport>, u64), LabError> {
        let dropped = self.traffic.stop()?;
        let streams = account(&self.accounts).streams.values().map(Tracker::report).collect();
        Ok((streams, dropped))
    }
}

fn account(accounts: &Accounts) -> MutexGuard<'_, Account> {
    accounts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn receiver_socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    super::enlarge_receive_buffer(&socket);
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn receive(socket: &UdpSocket, echo: bool, accounts: &Accounts, stop: &Stop) -> u64 {
    let mut buffer = vec![0; 65_536];
    loop {
        let stopped = stop.readable(socket, None) == Wake::Stopped;
        // Once stopped, what is queued is taken in still; a flood does not prolong that for ever.
        let enough = Instant::now() + Duration::from_millis(200);
        // Errors here are those of echoes that came back; the sender's account has them.
        while let Ok((len, source)) = socket.recv_from(&mut buffer) {
            account(accounts).arrive(&buffer[..len], source);
            if echo {
                let _ = socket.send_to(&buffer[..len], source);
            }
            if !stopped || Instant::now() > enough {
                break;
            }
        }
        if stopped {
            return socket.local_addr().map_or(0, dropped_at);
        }
    }
}

/// The kernel's count of datagrams dropped at the sockets bound to this port in this thread's
/// namespace (the last column of /proc/net/udp).
fn dropped_at(address: SocketAddr) -> u64 {
    let file = if address.is_ipv4() { "udp" } else { "udp6" };
    let table = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let port = format!(":{:04X}", address.port());
    let drops = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let local = columns.get(1).filter(|local| local.ends_with(&port));
        local.and(columns.last())?.parse::<u64>().ok()
    };
    table.lines().filter_map(drops).sum()
}

fn unspecified(like: SocketAddr) -> IpAddr {
    match like {
        SocketAddr::V4(_) => IpAddr::from([0; 4]),
        SocketAddr::V6(_) => IpAddr::from([0; 16]),
    }
}
