//! How many flows the device may hold, and how fast it takes them: shared by all threads, touched at insert and removal.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Flows of one connection: one for each direction.
const FLOWS: u64 = 2;

/// The flow table's room in one life of the device. A reset begins a new one, so that nobody gives back what
/// was lost.
pub struct FlowCapacity {
    limit: u64,
    used: AtomicU64,
    /// Time between two inserts, ns; 0: as fast as they come.
    interval: u64,
    next: AtomicU64,
}

impl FlowCapacity {
    /// Room for `limit` flows, `rate` inserts a second (0: any number).
    pub fn new(limit: Option<u64>, rate: u64) -> Self {
        FlowCapacity {
            limit: limit.unwrap_or(u64::MAX),
            used: AtomicU64::new(0),
            interval: 1_000_000_000u64.checked_div(rate).unwrap_or(0),
            next: AtomicU64::new(0),
        }
    }

    /// Takes room for a connection; whether there was any.
    pub fn reserve(&self, now: u64) -> bool {
        let fits = |used: u64| used.checked_add(FLOWS).filter(|&u| u <= self.limit);
        if self.used.fetch_update(Relaxed, Relaxed, fits).is_err() {
            return false;
        }
        if self.interval > 0 {
            let turn = |next: u64| {
                (next <= now).then(|| next.max(now.saturating_sub(self.interval)) + self.interval)
            };
            if self.next.fetch_update(Relaxed, Relaxed, turn).is_err() {
                self.release();
                return false;
            }
        }
        true
    }

    /// Gives back the room of a connection.
    pub fn release(&self) {
        self.used.fetch_sub(FLOWS, Relaxed);
    }

    /// Flows held.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_two_flows_and_gives_them_back() {
        let room = FlowCapacity::new(Some(5), 0);
        assert!(room.reserve(0) && room.reserve(0));
        assert!(!room.reserve(0), "the fifth flow alone is no connection");
        room.release();
        assert!(room.reserve(0));
        assert_eq!(room.used(), 4);
    }

    #[test]
    fn inserts_keep_the_rate() {
        let room = FlowCapacity::new(None, 1000);
        let taken = (0..100_000u64).filter(|i| room.reserve(i * 100_000)).count();
        assert!((9_990..=10_010).contains(&taken), "1000/s for 10 s, got {taken}");
    }
}
