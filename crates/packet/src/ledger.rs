//! The account of one observation point, and the law that it must balance.

use core::ops::{Add, AddAssign};

use crate::reason::{ConsumeReason, CreateReason, DropReason, PuntReason};

/// An amount of traffic in three units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Count {
    /// Frames as the device handles them; a super-frame is one. Comparable with the kernel's counters.
    pub frames: u64,
    /// Packets of the wire: a super-frame counts its segments.
    pub packets: u64,
    /// Bytes of the wire, from the Ethernet header to the end of the payload, headers repeated per
    /// segment, without FCS.
    pub bytes: u64,
}

impl Count {
    /// Nothing.
    pub const ZERO: Count = Count { frames: 0, packets: 0, bytes: 0 };

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl Add for Count {
    type Output = Count;
    #[inline]
    fn add(self, other: Count) -> Count {
        Count {
            frames: self.frames + other.frames,
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
        }
    }
}

impl AddAssign for Count {
    #[inline]
    fn add_assign(&mut self, other: Count) {
        *self = *self + other;
    }
}

impl core::iter::Sum for Count {
    fn sum<I: Iterator<Item = Count>>(counts: I) -> Count {
        counts.fold(Count::ZERO, Add::add)
    }
}

/// How frames came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entered {
    /// From a port.
    pub port: Count,
    /// Back from the host path.
    pub host_path: Count,
    /// Handed over by another worker.
    pub worker: Count,
    /// At the host path: taken from the punt queue.
    pub punted: Count,
    /// Made here, by reason.
    pub created: [Count; CreateReason::COUNT],
}

/// How frames went out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Through a port.
    pub port: Count,
    /// Punted to the host path, by reason.
    pub host_path: [Count; PuntReason::COUNT],
    /// At the host path: given back to the worker.
    pub returned: Count,
    /// Handed over to another worker.
    pub worker: Count,
    /// Dropped, by reason.
    pub drops: [Count; DropReason::COUNT],
    /// Consumed, by reason.
    pub consumed: [Count; ConsumeReason::COUNT],
}

/// The account of one observation point, written by one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// How frames came in.
    pub entered: Entered,
    /// How frames went out.
    pub left: Left,
    /// Frames that are inside now.
    pub held: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// An account on which nothing has happened yet.
    pub const fn new() -> Ledger {
        const Z: Count = Count::ZERO;
        Ledger {
            entered: Entered {
                port: Z,
                host_path: Z,
                worker: Z,
                punted: Z,
                created: [Z; CreateReason::COUNT],
            },
            left: Left {
                port: Z,
                host_path: [Z; PuntReason::COUNT],
                returned: Z,
                worker: Z,
                drops: [Z; DropReason::COUNT],
                consumed: [Z; ConsumeReason::COUNT],
            },
            held: 0,
        }
    }

    /// Counts a frame that was made here.
    #[inline]
    pub fn create(&mut self, reason: CreateReason, count: Count) {
        self.entered.created[reason.index()] += count;
    }

    /// Counts a frame that goes to the host path.
    #[inline]
    pub fn punt(&mut self, reason: PuntReason, count: Count) {
        self.left.host_path[reason.index()] += count;
    }

    /// Counts a frame that is dropped.
    #[inline]
    pub fn drop(&mut self, reason: DropReason, count: Count) {
        self.left.drops[reason.index()] += count;
    }

    /// Counts a frame that ends here because it was for us.
    #[inline]
    pub fn consume(&mut self, reason: ConsumeReason, count: Count) {
        self.left.consumed[reason.index()] += count;
    }

    /// All that came in, created frames included.
    pub fn total_entered(&self) -> Count {
        let e = &self.entered;
        e.port + e.host_path + e.worker + e.punted + e.created.iter().copied().sum()
    }

    /// All that went out, drops and consumed frames included.
    pub fn total_left(&self) -> Count {
        let l = &self.left;
        l.port
            + l.returned
            + l.worker
            + l.host_path.iter().copied().sum()
            + l.drops.iter().copied().sum()
            + l.consumed.iter().copied().sum()
    }

    /// The law: frames entered, less frames left, less frames held. Anything but 0 is an alarm:
    /// above 0 frames were lost without a name, below 0 frames were counted twice.
    pub fn unaccounted(&self) -> i64 {
        let inside = self.total_entered().frames.wrapping_sub(self.total_left().frames);
        inside.wrapping_sub(self.held) as i64
    }

    /// Adds another account to this one.
    pub fn merge(&mut self, other: &Ledger) {
        let (e, o) = (&mut self.entered, &other.entered);
        e.port += o.port;
        e.host_path += o.host_path;
        e.worker += o.worker;
        e.punted += o.punted;
        add_each(&mut e.created, &o.created);
        let (l, o) = (&mut self.left, &other.left);
        l.port += o.port;
        add_each(&mut l.host_path, &o.host_path);
        l.returned += o.returned;
        l.worker += o.worker;
        add_each(&mut l.drops, &o.drops);
        add_each(&mut l.consumed, &o.consumed);
        self.held += other.held;
    }

    /// The drops that happened, in the order of [`DropReason::ALL`].
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, Count)> + '_ {
        non_zero(DropReason::ALL, &self.left.drops)
    }

    /// The punts that happened, in the order of [`PuntReason::ALL`].
    pub fn punts(&self) -> impl Iterator<Item = (PuntReason, Count)> + '_ {
        non_zero(PuntReason::ALL, &self.left.host_path)
    }

    /// What was consumed, in the order of [`ConsumeReason::ALL`].
    pub fn consumed(&self) -> impl Iterator<Item = (ConsumeReason, Count)> + '_ {
        non_zero(ConsumeReason::ALL, &self.left.consumed)
    }

    /// What was created, in the order of [`CreateReason::ALL`].
    pub fn created(&self) -> impl Iterator<Item = (CreateReason, Count)> + '_ {
        non_zero(CreateReason::ALL, &self.entered.created)
    }
}

fn add_each(into: &mut [Count], from: &[Count]) {
    for (a, b) in into.iter_mut().zip(from) {
        *a += *b;
    }
}

fn non_zero<'a, R: Copy>(
    reasons: &'static [R],
    counts: &'a [Count],
) -> impl Iterator<Item = (R, Count)> + 'a {
    reasons.iter().copied().zip(counts.iter().copied()).filter(|(_, count)| !count.is_zero())
}
