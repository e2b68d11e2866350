//! Numbered datagrams: what a sender writes into them, and the account that a receiver keeps.

use super::series::{Sample, Series};
use std::net::SocketAddr;
use std::ops::Range;

/// Bytes that every numbered datagram begins with.
pub(super) const HEADER_LEN: usize = 24;

const MAGIC: u32 = 0x5d90_1ab1;
/// Sequence numbers beyond the highest seen by more than this are foreign: no sender jumps so.
const MAX_JUMP: u64 = 1 << 24;

/// The head of a numbered datagram, all big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    /// The sender's name for this stream.
    pub(super) stream: u32,
    /// Counts from 0 within the stream.
    pub(super) sequence: u64,
    /// When it was sent, ns of the monotonic clock.
    pub(super) sent_at: u64,
}

impl Numbered {
    pub(super) fn write(&self, buffer: &mut [u8; HEADER_LEN]) {
        buffer[..4].copy_from_slice(&MAGIC.to_be_bytes());
        buffer[4..8].copy_from_slice(&self.stream.to_be_bytes());
        buffer[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        buffer[16..].copy_from_slice(&self.sent_at.to_be_bytes());
    }

    /// `None` for datagrams that no sender of ours wrote.
    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let head = datagram.first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| head[at + i]));
        (word(0) >> 32 == u64::from(MAGIC)).then(|| Self {
            stream: word(0) as u32,
            sequence: word(8),
            sent_at: word(16),
        })
    }
}

/// What a receiver knows of one stream from one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// Address and port that the datagrams came from.
    pub source: SocketAddr,
    /// The sender's name for the stream.
    pub stream: u32,
    /// Distinct datagrams received.
    pub received: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Datagrams received again.
    pub duplicates: u64,
    /// Distinct datagrams received after one with a higher number.
    pub reordered: u64,
    /// One more than the highest number received.
    pub end: u64,
    /// Numbers below `end` that did not arrive, as ranges.
    pub missing: Vec<Range<u64>>,
    /// First arrival, ns of the monotonic clock.
    pub first_at: u64,
    /// Last arrival of a distinct datagram.
    pub last_at: u64,
    /// Distinct datagrams over time.
    pub samples: Vec<Sample>,
}

impl StreamReport {
    /// How many of the `sent` datagrams did not arrive.
    pub fn lost_of(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received)
    }
}

/// The account of one stream, kept datagram by datagram.
#[derive(Debug)]
pub(super) struct Tracker {
    report: StreamReport,
    /// Bit by sequence number: whether it arrived.
    arrived: Vec<u64>,
    series: Series,
}

impl Tracker {
    pub(super) fn new(source: SocketAddr, stream: u32, now: u64) -> Self {
        let report = StreamReport {
            source,
            stream,
            received: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            end: 0,
            missing: Vec::new(),
            first_at: now,
            last_at: now,
            samples: Vec::new(),
        };
        Self { report, arrived: Vec::new(), series: Series::new(now) }
    }

    /// Counts one arrival; false if its number can't be of this stream.
    pub(super) fn arrive(&mut self, sequence: u64, bytes: u64, now: u64) -> bool {
        let report = &mut self.report;
        if sequence > report.end.saturating_add(MAX_JUMP) {
            return false;
        }
        let (word, bit) = ((sequence / 64) as usize, 1 << (sequence % 64));
        if self.arrived.len() <= word {
            self.arrived.resize(word + 1, 0);
        }
        if self.arrived[word] & bit != 0 {
            report.duplicates += 1;
            return true;
        }
        self.arrived[word] |= bit;
        report.received += 1;
        report.bytes += bytes;
        report.reordered += u64::from(sequence < report.end);
        report.end = report.end.max(sequence + 1);
        report.last_at = now;
        self.series.record(now, bytes);
        true
    }

    /// Distinct datagrams received.
    pub(super) fn received(&self) -> u64 {
        self.report.received
    }

    pub(super) fn report(&self) -> StreamReport {
        let mut missing: Vec<Range<u64>> = Vec::new();
        if self.report.received < self.report.end {
            let absent = |n: &u64| self.arrived[(n / 64) as usize] & (1 << (n % 64)) == 0;
            for n in (0..self.report.end).filter(absent) {
                match missing.last_mut() {
                    Some(range) if range.end == n => range.end = n + 1,
                    _ => missing.push(n..n + 1),
                }
            }
        }
        StreamReport { missing, samples: self.series.samples(), ..self.report.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const SOURCE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

    #[test]
    fn arrivals_are_told_apart() {
        let mut tracker = Tracker::new(SOURCE, 3, 100);
        for (i, sequence) in [0, 1, 4, 2, 4, 7].into_iter().enumerate() {
            assert!(tracker.arrive(sequence, 10, 100 + i as u64));
        }
        assert!(!tracker.arrive(u64::MAX, 10, 200));
        let report = tracker.report();
        assert_eq!((report.received, report.duplicates, report.reordered, report.end), (5, 1, 1, 8));
        assert_eq!(report.missing, [3..4, 5..7]);
        assert_eq!((report.first_at, report.last_at, report.bytes), (100, 105, 50));
        assert_eq!(report.lost_of(10), 5);
    }

    proptest! {
        #[test]
        fn account_equals_a_set(sequences in prop::collection::vec(0u64..200, 1..300)) {
            let mut tracker = Tracker::new(SOURCE, 0, 0);
            let (mut set, mut late) = (BTreeSet::new(), 0);
            for &sequence in &sequences {
                let highest = set.last().copied();
                if set.insert(sequence) && highest.is_some_and(|h| sequence < h) {
                    late += 1;
                }
                tracker.arrive(sequence, 1, 0);
            }
            let report = tracker.report();
            prop_assert_eq!(report.received, set.len() as u64);
            prop_assert_eq!(report.duplicates, (sequences.len() - set.len()) as u64);
            prop_assert_eq!(report.reordered, late);
            let missing: Vec<u64> = report.missing.iter().cloned().flatten().collect();
            let expected: Vec<u64> = (0..report.end).filter(|n| !set.contains(n)).collect();
            prop_assert_eq!(missing, expected);
        }

        #[test]
        fn heads_round_trip(stream: u32, sequence: u64, sent_at: u64, more: Vec<u8>) {
            let head = Numbered { stream, sequence, sent_at };
            let mut bytes = [0; HEADER_LEN];
            head.write(&mut bytes);
            let mut datagram = bytes.to_vec();
            datagram.extend(&more);
            prop_assert_eq!(Numbered::read(&datagram), Some(head));
            prop_assert_eq!(Numbered::read(&datagram[..HEADER_LEN - 1]), None);
            datagram[0] ^= 1;
            prop_assert_eq!(Numbered::read(&datagram), None);
        }
    }
}
