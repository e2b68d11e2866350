//! Counts over time, in slots of 50 ms.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What fell into one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The slot's begin, in ns of the monotonic clock; it lasts [`Series::SLOT`].
    pub at: u64,
    /// Bytes of payload.
    pub bytes: u64,
    /// Datagrams, or reads of a stream.
    pub count: u64,
}

/// Goodput over time. Clones share the counts, so one side can read while the other writes.
#[derive(Clone, Debug)]
pub struct Series(Arc<Mutex<Slots>>);

#[derive(Debug)]
struct Slots {
    begin: u64,
    /// (bytes, count) by slot.
    slots: Vec<(u64, u64)>,
}

impl Series {
    /// Length of a slot in ns: 50 ms.
    pub const SLOT: u64 = 50_000_000;

    /// An empty series beginning at `now` (ns).
    pub fn new(now: u64) -> Self {
        Self(Arc::new(Mutex::new(Slots { begin: now, slots: Vec::new() })))
    }

    /// Counts `bytes` at `now`; times before the begin count into the first slot.
    pub fn record(&self, now: u64, bytes: u64) {
        let mut inner = self.inner();
        let index = (now.saturating_sub(inner.begin) / Self::SLOT) as usize;
        if inner.slots.len() <= index {
            inner.slots.resize(index + 1, (0, 0));
        }
        let slot = &mut inner.slots[index];
        *slot = (slot.0 + bytes, slot.1 + 1);
    }

    /// All slots from the begin to the last one counted in, empty ones included.
    pub fn samples(&self) -> Vec<Sample> {
        let inner = self.inner();
        let slot = |(i, &(bytes, count)): (usize, &(u64, u64))| Sample {
            at: inner.begin + i as u64 * Self::SLOT,
            bytes,
            count,
        };
        inner.slots.iter().enumerate().map(slot).collect()
    }

    /// Bits per second over the whole slots between `from` and `to` (ns); 0 if there is none.
    pub fn bits_per_second(&self, from: u64, to: u64) -> f64 {
        let inner = self.inner();
        let first = from.saturating_sub(inner.begin).div_ceil(Self::SLOT) as usize;
        let end = (to.saturating_sub(inner.begin) / Self::SLOT) as usize;
        if end <= first {
            return 0.0;
        }
        let bytes: u64 = inner.slots.iter().take(end).skip(first).map(|s| s.0).sum();
        bytes as f64 * 8e9 / ((end - first) as u64 * Self::SLOT) as f64
    }

    fn inner(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_rates() {
        let ms = 1_000_000;
        let series = Series::new(1000 * ms);
        for (at, bytes) in [(1000, 10), (1049, 20), (1150, 40), (990, 5)] {
            series.record(at * ms, bytes);
        }
        let slots: Vec<_> = series.samples().iter().map(|s| (s.at / ms, s.bytes, s.count)).collect();
        assert_eq!(slots, [(1000, 35, 3), (1050, 0, 0), (1100, 0, 0), (1150, 40, 1)]);
        assert_eq!(series.bits_per_second(1000 * ms, 1050 * ms), 35.0 * 8.0 * 20.0);
        // Only whole slots count: 1050 to 1200, with 40 bytes in 150 ms.
        let rate = series.bits_per_second(1001 * ms, 1249 * ms);
        assert!((rate - 40.0 * 8.0 / 0.15).abs() < 1e-6, "{rate}");
        assert_eq!(series.bits_per_second(1001 * ms, 1099 * ms), 0.0);
    }
}
