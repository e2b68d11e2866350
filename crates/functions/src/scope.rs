//! Scopes: the independent parts of a table, such as the ACL groups, or the routes of each ENI.
//!
//! What is in a scope never changes: a commit builds the changed scopes anew and shares all others with the tables before it.

use core::hash::{BuildHasherDefault, Hasher};
use packet::{DropReason, PuntReason};
use pipeline::judge::Step;
use std::collections::HashMap;
use std::sync::Arc;

/// What a scope answers where no entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// Entries may be missing here: the packet goes where all of them are.
    Punt,
    /// All entries are here: the program's own answer to a miss holds.
    Decide,
}

impl Miss {
    /// The step after a miss, where the program's own answer is to drop for `reason`.
    #[inline]
    pub fn step(self, reason: DropReason) -> Step {
        match self {
            Miss::Punt => Step::Punt(PuntReason::TableMiss),
            Miss::Decide => Step::Drop(reason),
        }
    }
}

/// The scopes of one table, by number. A clone shares them.
#[derive(Clone, Debug)]
pub struct Scopes<T> {
    map: HashMap<u32, Arc<T>, BuildHasherDefault<Multiply>>,
    absent: Miss,
}

impl<T> Scopes<T> {
    /// No scope; `absent` is what one that was never set answers to everything.
    pub fn new(absent: Miss) -> Self {
        Scopes { map: HashMap::default(), absent }
    }

    /// Sets or replaces a scope.
    pub fn set(&mut self, scope: u32, content: Arc<T>) {
        self.map.insert(scope, content);
    }

    /// Removes a scope and returns its content.
    pub fn remove(&mut self, scope: u32) -> Option<Arc<T>> {
        self.map.remove(&scope)
    }

    /// A scope's content, or how one that was never set answers.
    #[inline]
    pub fn get(&self, scope: u32) -> Result<&T, Miss> {
        self.map.get(&scope).map(Arc::as_ref).ok_or(self.absent)
    }
}

/// Hashes scope numbers, which the controller chooses, by one multiplication.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(29) ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        // The product's upper bits depend on all of the number; the map takes from both ends.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_it_had_and_an_absent_scope_answers_as_told() {
        let mut scopes = Scopes::new(Miss::Punt);
        scopes.set(7, Arc::new("old"));
        let before = scopes.clone();
        scopes.set(7, Arc::new("new"));
        assert_eq!(scopes.get(7), Ok(&"new"));
        assert_eq!(before.get(7), Ok(&"old"));
        assert_eq!(scopes.remove(7).as_deref(), Some(&"new"));
        assert_eq!(scopes.get(7), Err(Miss::Punt));
        assert_eq!(Scopes::<()>::new(Miss::Decide).get(0), Err(Miss::Decide));
    }

    #[test]
    fn a_miss_is_punted_or_is_the_programs_own_drop() {
        assert_eq!(Miss::Punt.step(DropReason::NoRoute), Step::Punt(PuntReason::TableMiss));
        assert_eq!(Miss::Decide.step(DropReason::NoRoute), Step::Drop(DropReason::NoRoute));
    }
}
