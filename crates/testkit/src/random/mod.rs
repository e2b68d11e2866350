//! Random policies and traffic, the same for the same seed.

mod desired;
mod overlap;
mod traffic;

pub use desired::{change, desired, profile};
pub use overlap::Overlap;
pub use traffic::{Sent, Traffic};

/// A small generator of random numbers (splitmix64, Steele, Lea and Flood 2014): the same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is above 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// A number within the range, both ends included.
    pub fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// A generator of its own, for a part whose numbers shall not shift when another part takes more.
    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random(self.next_u64())
    }
}
