//! Whole conversations of two legal ends over a bad network: conntrack lets everything pass that its receiver could use.
//!
//! Positions are counted in 64 bits from an end's SYN, which is 0; its data begin at 1, and its FIN follows them.

use super::*;
use std::collections::VecDeque;

/// A segment on its way: a range of positions, and the receiver's side of the sender.
#[derive(Clone, Copy, Debug)]
struct Sent {
    flags: u8,
    from: u64,
    to: u64,
    ack: u64,
    window: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Listen,
    SynSent,
    SynReceived,
    Established,
}

/// One end: it never sends beyond what the other's windows allowed, but for probes of a closed window.
struct End {
    phase: Phase,
    first: u32,
    /// The position behind its FIN.
    all: u64,
    acked: u64,
    sent: u64,
    /// Up to where it may send, as it last heard.
    allowed: u64,
    /// The window that it last heard.
    window: u64,
    peer_scale: Option<u8>,
    largest_window: u64,
    scale: Option<u8>,
    received: u64,
    /// What came out of order.
    islands: Vec<(u64, u64)>,
    /// The largest window that it advertises.
    room: u16,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl End {
    fn new(random: &mut Random, active: bool) -> End {
        let room = [300, 4000, 65_535][random.below(3) as usize];
        let scale = [None, Some(0), Some(3), Some(14)][random.below(4) as usize];
        End {
            phase: if active { Phase::SynSent } else { Phase::Listen },
            first: random.below(1 << 32) as u32,
            all: 2 + random.below(600_000),
            acked: 0,
            sent: 0,
            allowed: 0,
            window: 0,
            peer_scale: None,
            largest_window: 0,
            scale,
            received: 0,
            islands: Vec::new(),
            room,
        }
    }

    fn segment(&self, flags: u8, from: u64, to: u64, window: u16) -> Sent {
        let flags = if self.phase == Phase::SynSent { flags } else { flags | ACK };
        Sent { flags, from, to, ack: self.received, window }
    }

    /// A range of its stream, with the FIN if it reaches so far.
    fn stream(&mut self, from: u64, to: u64, window: u16) -> Sent {
        self.sent = self.sent.max(to);
        self.segment(if to == self.all { FIN } else { 0 }, from, to, window)
    }

    /// Something that it may send now.
    fn act(&mut self, random: &mut Random) -> Option<Sent> {
        let window = if random.one_in(6) { 0 } else { random.below(u64::from(self.room) + 1) as u16 };
        match self.phase {
            Phase::Listen => return None,
            Phase::SynSent | Phase::SynReceived => {
                self.sent = self.sent.max(1);
                return Some(self.segment(SYN, 0, 1, window));
            }
            Phase::Established => {}
        }
        let size = 1 + [random.below(1460), random.below(40_000)][random.below(2) as usize];
        let (acked, sent) = (self.acked, self.sent);
        Some(match random.below(8) {
            // New data, or else a probe of a closed window.
            0..=3 if sent < self.allowed.min(self.all) => {
                self.stream(sent, (sent + size).min(self.allowed).min(self.all), window)
            }
            0..=3 if self.window == 0 && sent == self.allowed && sent < self.all => {
                self.stream(sent, sent + 1, window)
            }
            // From the first byte that is not acknowledged, or from anywhere behind it.
            4 if acked < sent => self.stream(acked, (acked + size).min(sent), window),
            5 if acked < sent => {
                let from = acked + random.below(sent - acked);
                self.stream(from, (from + size).min(sent), window)
            }
            6 => self.segment(0, sent - 1, sent - 1, window), // keepalive
            _ => self.segment(0, sent, sent, window),
        })
    }

    /// All that it may send, without any hesitation.
    fn finish(&mut self, out: &mut VecDeque<Sent>) {
        let room = self.room;
        match self.phase {
            Phase::Listen => {}
            Phase::SynSent | Phase::SynReceived => {
                self.sent = self.sent.max(1);
                out.push_back(self.segment(SYN, 0, 1, room));
            }
            Phase::Established => {
                let mut from = self.acked;
                let to = self.allowed.max(from + 1).min(self.all);
                while from < to {
                    let next = (from + 60_000).min(to);
                    out.push_back(self.stream(from, next, room));
                    from = next;
                }
                out.push_back(self.segment(0, self.sent, self.sent, room));
            }
        }
    }

    /// Whether it could use the segment at all: RFC 9293 (3.10.7.4), RFC 5961 (5.2).
    fn could_use(&self, segment: &Sent) -> bool {
        let news = if segment.to > segment.from {
            segment.to > self.received
        } else {
            segment.from >= self.received
        };
        self.phase != Phase::Established
            || news && segment.flags & SYN == 0 && segment.ack + self.largest_window >= self.acked
    }

    fn receive(&mut self, segment: &Sent, scale: Option<u8>) {
        let syn = segment.flags & SYN != 0;
        let acknowledges = segment.flags & ACK != 0 && segment.ack >= 1;
        if syn && self.phase != Phase::Established {
            self.peer_scale = scale;
            self.received = self.received.max(1);
            self.phase = if acknowledges { Phase::Established } else { Phase::SynReceived };
        } else if acknowledges && self.phase == Phase::SynReceived {
            self.phase = Phase::Established;
        }
        if self.phase != Phase::Established {
            self.window = u64::from(segment.window);
            self.allowed = 1 + self.window;
            self.largest_window = self.largest_window.max(u64::from(segment.window));
            return;
        }
        let shift = match (self.scale, self.peer_scale) {
            (Some(_), Some(peer)) if !syn => peer,
            _ => 0,
        };
        let window = u64::from(segment.window) << shift;
        self.largest_window = self.largest_window.max(window);
        if segment.ack >= self.acked {
            self.acked = segment.ack;
            self.allowed = segment.ack + window;
            self.window = window;
        }
        self.islands.push((segment.from, segment.to));
        self.islands.sort_unstable();
        for &(from, to) in &self.islands {
            if from <= self.received {
                self.received = self.received.max(to);
            }
        }
        let received = self.received;
        self.islands.retain(|&(_, to)| to > received);
    }
}

/// How bad the network is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    /// It loses and repeats.
    Lossy,
    /// And it delays and reorders without bound.
    Wild,
}

struct Exchange {
    ends: [End; 2],
    /// From each end to us, and from us to the other end.
    before: [VecDeque<Sent>; 2],
    behind: [VecDeque<Sent>; 2],
    /// The state, and which end opened.
    track: Option<(Track, usize)>,
    passed: u32,
    refused: u32,
}

impl Exchange {
    fn headers(&self, end: usize, segment: &Sent) -> Headers {
        let (sender, receiver) = (&self.ends[end], &self.ends[1 - end]);
        let controls = u64::from(segment.flags & SYN != 0) + u64::from(segment.flags & FIN != 0);
        let len = (segment.to - segment.from - controls) as u32;
        let mut seg =
            seg(segment.flags, sender.first.wrapping_add(segment.from as u32), len).window(segment.window);
        if segment.flags & ACK != 0 {
            seg = seg.ack(receiver.first.wrapping_add(segment.ack as u32));
        }
        if let (true, Some(scale)) = (segment.flags & SYN != 0, sender.scale) {
            seg = seg.scale(scale);
        }
        seg.headers()
    }

    /// Takes a segment past conntrack.
    fn pass(&mut self, end: usize, segment: Sent) {
        let headers = self.headers(end, &segment);
        let result = match &mut self.track {
            None => open(&headers).map(|track| self.track = Some((track, end))),
            Some((track, opener)) => packet(track, usize::from(end != *opener), &headers),
        };
        let receiver = &self.ends[1 - end];
        match result {
            Ok(()) => {
                self.passed += 1;
                self.behind[end].push_back(segment);
            }
            Err(reason) => {
                self.refused += 1;
                assert!(
                    !receiver.could_use(&segment),
                    "{reason}: {segment:?}; received {}, acked {}; {:?}",
                    receiver.received,
                    receiver.acked,
                    self.track
                );
            }
        }
    }

    fn deliver(&mut self, end: usize, segment: &Sent) {
        let scale = self.ends[end].scale;
        self.ends[1 - end].receive(segment, scale);
    }

    fn step(&mut self, random: &mut Random, network: Network) {
        let end = random.below(2) as usize;
        let take = |queue: &mut VecDeque<Sent>, random: &mut Random| {
            let at =
                if network == Network::Wild { random.below(queue.len().max(1) as u64) as usize } else { 0 };
            let segment = *queue.get(at)?;
            if !random.one_in(8) {
                queue.remove(at); // else it comes again
            }
            (!random.one_in(12)).then_some(segment)
        };
        match random.below(3) {
            0 => {
                if let Some(segment) = self.ends[end].act(random) {
                    self.before[end].push_back(segment);
                }
            }
            1 => {
                if let Some(segment) = take(&mut self.before[end], random) {
                    self.pass(end, segment);
                }
            }
            _ => {
                if let Some(segment) = take(&mut self.behind[end], random) {
                    self.deliver(end, &segment);
                }
            }
        }
    }

    /// Lets both ends come to their end over a network that has become good.
    fn finish(&mut self) {
        for _ in 0..3000 {
            for end in [0, 1] {
                self.ends[end].finish(&mut self.before[end]);
                while let Some(segment) = self.before[end].pop_front() {
                    self.pass(end, segment);
                }
                while let Some(segment) = self.behind[end].pop_front() {
                    self.deliver(end, &segment);
                }
            }
            if self.ends.iter().all(|end| end.phase == Phase::Established && end.acked == end.all) {
                return;
            }
        }
        panic!("the conversation does not come to its end: {:?}", self.track);
    }
}

/// Runs one conversation; gives what passed and what was refused.
fn converse(seed: u64, network: Network) -> (u32, u32) {
    let mut random = Random(seed);
    let simultaneous = random.one_in(4);
    let ends = [End::new(&mut random, true), End::new(&mut random, simultaneous)];
    let mut exchange = Exchange {
        ends,
        before: Default::default(),
        behind: Default::default(),
        track: None,
        passed: 0,
        refused: 0,
    };
    for _ in 0..random.below(1500) {
        exchange.step(&mut random, network);
    }
    exchange.finish();
    let (track, _) = exchange.track.unwrap();
    assert_eq!(state_word(&track), "closed");
    assert!(
        exchange.ends[0].received == exchange.ends[1].all
            && exchange.ends[1].received == exchange.ends[0].all
    );
    (exchange.passed, exchange.refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn loss_and_retransmission_cost_no_segment(seed: u64) {
        let (_, refused) = converse(seed, Network::Lossy);
        prop_assert_eq!(refused, 0);
    }

    #[test]
    fn reordering_costs_only_what_the_receiver_could_not_use(seed: u64) {
        let (passed, refused) = converse(seed, Network::Wild);
        prop_assert!(refused <= passed, "{refused} refused, {passed} passed");
    }
}
