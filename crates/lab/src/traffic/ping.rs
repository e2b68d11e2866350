//! ICMP and ICMPv6 echo (RFC 792; RFC 4443, 4.1 and 4.2) over the kernel's ping sockets.

use super::{Traffic, now};
use crate::error::LabError;
use crate::host::Host;
use crate::stop::{Stop, Wake};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
const HEADER_LEN: usize = 8;

/// A series of echo requests.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Whom to ask.
    pub target: IpAddr,
    /// The source address; the kernel's choice without.
    pub source: Option<IpAddr>,
    /// Number of requests.
    pub count: u16,
    /// Time between requests.
    pub interval: Duration,
    /// How long after the last request replies are awaited.
    pub timeout: Duration,
    /// Bytes of payload.
    pub payload: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u64,
    /// Requests that were answered, with the payload as sent.
    pub received: u64,
    /// Further answers to the same request.
    pub duplicates: u64,
    /// Answers with another payload or an unknown sequence number.
    pub wrong: u64,
    /// Errors by name: refused sends, and ICMP errors that came back.
    pub errors: BTreeMap<String, u64>,
    /// Round trips in ns, in the order of arrival.
    pub round_trips: Vec<u64>,
}

impl PingReport {
    /// Requests without an answer.
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }

    /// The median round trip in ns.
    pub fn median(&self) -> Option<u64> {
        let mut sorted = self.round_trips.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

impl Ping {
    /// Five requests of 56 bytes, 20 ms apart, 1 s of patience.
    pub fn new(target: IpAddr) -> Self {
        Self {
            target,
            source: None,
            count: 5,
            interval: Duration::from_millis(20),
            timeout: Duration::from_secs(1),
            payload: 56,
        }
    }

    /// Starts pinging from `host`. It ends when all are answered, or at the timeout.
    ///
    /// # Errors
    /// The socket could not be made, or `source` is not an address of the host.
    pub fn start(&self, host: &Host) -> Result<Traffic<PingReport>, LabError> {
        let ping = self.clone();
        let socket =
            host.run(|| ping.socket())?.map_err(LabError::traffic(format!("ping {}", self.target)))?;
        Traffic::start(host, move |stop| Ok(ping.run(&socket, stop)))
    }

    fn socket(&self) -> rustix::io::Result<OwnedFd> {
        let (family, protocol) = match self.target {
            IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
            IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::DGRAM, flags, Some(protocol))?;
        if let Some(source) = self.source {
            net::bind(&socket, &SocketAddr::new(source, 0))?;
        }
        Ok(socket)
    }

    fn run(&self, socket: &OwnedFd, stop: &Stop) -> PingReport {
        let begin = Instant::now();
        let target = SocketAddr::new(self.target, 0);
        let mut report = PingReport::default();
        // By sequence number: time of sending, and whether it was answered.
        let mut requests: Vec<(u64, bool)> = Vec::new();
        let mut buffer = vec![0; HEADER_LEN + self.payload + 1];
        // Connected, the socket also reports the ICMP errors that its requests cause.
        if let Err(e) = net::connect(socket, &target) {
            *report.errors.entry(e.to_string()).or_default() += 1;
            return report;
        }
        loop {
            let next = u32::try_from(requests.len()).unwrap_or(u32::MAX);
            let all_sent = next >= u32::from(self.count);
            if all_sent && report.received == report.sent {
                return report;
            }
            let due = begin + self.interval * next.min(u32::from(self.count).saturating_sub(1));
            let deadline = if all_sent { due + self.timeout } else { due };
            if !all_sent && due <= Instant::now() {
                let sequence = requests.len() as u16;
                requests.push((now(), false));
                match net::send(socket, &self.request(sequence), SendFlags::empty()) {
                    Ok(_) => report.sent += 1,
                    Err(e) => *report.errors.entry(e.to_string()).or_default() += 1,
                }
                continue;
            }
            match stop.readable(socket, Some(deadline)) {
                Wake::Stopped => return report,
                Wake::TimedOut if all_sent => return report,
                Wake::TimedOut => {}
                Wake::Ready => match net::recv(socket, &mut buffer, RecvFlags::DONTWAIT) {
                    Ok((_, len)) => self.count_reply(&buffer[..len], &mut requests, &mut report),
                    Err(rustix::io::Errno::AGAIN) => {}
                    Err(e) => *report.errors.entry(e.to_string()).or_default() += 1,
                },
            }
        }
    }

    /// The kernel fills in identifier and checksum.
    fn request(&self, sequence: u16) -> Vec<u8> {
        let kind = if self.target.is_ipv4() { ECHO_REQUEST } else { ECHO_REQUEST_V6 };
        let mut message = vec![kind, 0, 0, 0, 0, 0];
        message.extend(sequence.to_be_bytes());
        message.extend(pattern(sequence, self.payload));
        message
    }

    fn count_reply(&self, message: &[u8], requests: &mut [(u64, bool)], report: &mut PingReport) {
        let kind = if self.target.is_ipv4() { ECHO_REPLY } else { ECHO_REPLY_V6 };
        let [k, 0, _, _, _, _, s0, s1, payload @ ..] = message else {
            report.wrong += 1;
            return;
        };
        let sequence = u16::from_be_bytes([*s0, *s1]);
        let right = *k == kind && payload.iter().copied().eq(pattern(sequence, self.payload));
        match requests.get_mut(usize::from(sequence)).filter(|_| right) {
            None => report.wrong += 1,
            Some((_, true)) => report.duplicates += 1,
            Some((sent, answered)) => {
                *answered = true;
                report.received += 1;
                report.round_trips.push(now().saturating_sub(*sent));
            }
        }
    }
}

fn pattern(sequence: u16, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |i| (i as u8).wrapping_add(sequence as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_told_apart() {
        let ping = Ping { payload: 4, ..Ping::new(IpAddr::from([10, 0, 0, 1])) };
        let mut requests = vec![(now(), false); 2];
        let mut report = PingReport { sent: 2, ..PingReport::default() };
        let good = [0, 0, 9, 9, 7, 7, 0, 1, 1, 2, 3, 4];
        let mut other_payload = good;
        other_payload[11] = 0;
        let mut unknown = good;
        unknown[7] = 2;
        let mut request = good;
        request[0] = 8;
        for message in [&good[..], &good, &other_payload, &unknown, &request, &good[..7], &[]] {
            ping.count_reply(message, &mut requests, &mut report);
        }
        assert_eq!((report.received, report.duplicates, report.wrong), (1, 1, 5));
        assert_eq!(report.lost(), 1);
        assert_eq!(report.median(), report.round_trips.first().copied());
    }
}
