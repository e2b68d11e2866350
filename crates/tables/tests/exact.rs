//! `exact::Index` with a caller's slab of keys, against the linear oracle.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tables::exact::{Cursor, Index};
use tables::reference::ExactMap;

/// An index as a caller uses it: keys in a slab, handles index the slab.
struct Keyed {
    index: Index,
    slab: Vec<Vec<u8>>,
    hash: fn(&[u8]) -> u64,
}

impl Keyed {
    fn new(hash: fn(&[u8]) -> u64) -> Self {
        Self { index: Index::with_capacity(0), slab: Vec::new(), hash }
    }

    fn find(&self, key: &[u8]) -> Option<u32> {
        self.index.find((self.hash)(key), |handle| self.slab[handle as usize] == key)
    }

    fn insert(&mut self, key: &[u8]) -> u32 {
        let handle = self.slab.len() as u32;
        self.slab.push(key.to_vec());
        self.index.insert((self.hash)(key), handle, |held| (self.hash)(&self.slab[held as usize]));
        handle
    }

    fn remove(&mut self, key: &[u8], handle: u32) -> bool {
        self.index.remove((self.hash)(key), handle)
    }

    fn scan_all(&self, buckets: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            cursor = self.index.scan(from, buckets, |handle| seen.push(handle));
        }
        seen.sort_unstable();
        seen
    }
}

/// FNV-1a and the finalizer of MurmurHash3.
fn good(key: &[u8]) -> u64 {
    let fnv = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}

/// Four homes at the table's end and two tags, 0 and its stand-in among them: every bucket
/// overflows and probes wrap.
fn crowded(key: &[u8]) -> u64 {
    let hash = good(key);
    let home = (u64::MAX >> 16) - (hash >> 8 & 3);
    home | (hash & 1) << 48
}

fn all_the_same(_: &[u8]) -> u64 {
    0
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16),
    Remove(u16),
    Migrate(u8),
    Clear,
}

fn steps(keys: u16, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (0..keys).prop_map(Step::Insert),
        40 => (0..keys).prop_map(Step::Remove),
        3 => (0..4u8).prop_map(Step::Migrate),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 0..count)
}

fn check(steps: &[Step], keys: u16, hash: fn(&[u8]) -> u64) -> Result<(), TestCaseError> {
    let mut fast = Keyed::new(hash);
    let mut oracle = ExactMap::default();
    for step in steps {
        match *step {
            Step::Insert(key) => {
                let key = key.to_be_bytes();
                if oracle.find(&key).is_none() {
                    let handle = fast.insert(&key);
                    oracle.insert(&key, handle);
                }
            }
            Step::Remove(key) => {
                let key = key.to_be_bytes();
                match oracle.remove(&key) {
                    Some(handle) => prop_assert!(fast.remove(&key, handle)),
                    None => prop_assert!(!fast.remove(&key, u32::MAX)),
                }
            }
            Step::Migrate(buckets) => {
                fast.index.migrate(buckets.into(), |held| hash(&fast.slab[held as usize]));
            }
            Step::Clear => {
                fast.index.clear();
                oracle = ExactMap::default();
            }
        }
        prop_assert_eq!(fast.index.len(), oracle.handles().len());
    }
    for key in 0..keys {
        let key = key.to_be_bytes();
        prop_assert_eq!(fast.find(&key), oracle.find(&key));
    }
    prop_assert_eq!(fast.scan_all(3), oracle.handles());
    Ok(())
}

proptest! {
    #[test]
    fn answers_as_the_oracle(steps in steps(400, 1200)) {
        check(&steps, 400, good)?;
    }

    #[test]
    fn answers_as_the_oracle_when_every_bucket_overflows(steps in steps(150, 600)) {
        check(&steps, 150, crowded)?;
    }

    #[test]
    fn answers_as_the_oracle_when_all_hashes_are_equal(steps in steps(60, 300)) {
        check(&steps, 60, all_the_same)?;
    }

    /// Whatever grows, moves and goes between the calls: what stays is seen.
    #[test]
    fn a_pass_sees_all_that_stays(
        before in 0u32..300,
        changes in prop::collection::vec((1usize..6, 0u32..40), 0..200),
    ) {
        let mut fast = Keyed::new(good);
        let stays: BTreeSet<u32> = (0..before).map(|key| fast.insert(&key.to_be_bytes())).collect();
        let mut seen = BTreeSet::new();
        let mut changes = changes.into_iter();
        let mut next_key = before;
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            let (buckets, inserts) = changes.next().unwrap_or((4, 0));
            cursor = fast.index.scan(from, buckets, |handle| { seen.insert(handle); });
            for key in next_key..next_key + inserts {
                let handle = fast.insert(&key.to_be_bytes());
                if key % 3 == 0 {
                    prop_assert!(fast.remove(&key.to_be_bytes(), handle));
                }
            }
            next_key += inserts;
        }
        prop_assert!(stays.is_subset(&seen));
    }
}

#[test]
fn holds_its_capacity_without_growing() {
    for entries in [0, 1, 7, 8, 15, 16, 1000, 100_000] {
        let mut index = Index::with_capacity(entries);
        let bytes = index.memory_bytes();
        let hash = |handle: u32| good(&handle.to_be_bytes());
        for handle in 0..entries as u32 {
            index.insert(hash(handle), handle, |_| panic!("an entry was moved"));
        }
        assert_eq!((index.len(), index.memory_bytes()), (entries, bytes));
        assert!(index.capacity() >= entries);
    }
}

#[test]
fn a_million_entries_take_at_most_64_bytes_each_while_growing() {
    let mut index = Index::with_capacity(0);
    let hash = |handle: u32| good(&handle.to_be_bytes());
    for handle in 0..1_000_000u32 {
        index.insert(hash(handle), handle, hash);
        if handle > 1000 {
            assert!(index.memory_bytes() <= 64 * index.len(), "at {handle}");
        }
    }
    for handle in 0..1_000_000u32 {
        index.prefetch(hash(handle));
        assert_eq!(index.find(hash(handle), |held| held == handle), Some(handle));
    }
}

/// No insert moves more than one bucket, and a growth ends before the next begins.
#[test]
fn an_insert_moves_at_most_ten_entries() {
    let mut index = Index::with_capacity(0);
    let hash = |handle: u32| good(&handle.to_be_bytes());
    for handle in 0..100_000u32 {
        let moved = std::cell::Cell::new(0);
        index.insert(hash(handle), handle, |held| {
            moved.set(moved.get() + 1);
            hash(held)
        });
        assert!(moved.get() <= 10);
    }
    while index.migrate(1, hash) {}
    let bytes = index.memory_bytes();
    assert!(!index.migrate(1, |_| panic!("nothing is left to move")));
    assert_eq!(bytes, index.clone().memory_bytes());
}

#[test]
fn a_clone_is_apart_from_its_origin() {
    let mut fast = Keyed::new(good);
    for key in 0..500u32 {
        fast.insert(&key.to_be_bytes());
    }
    let copy = fast.index.clone();
    for key in 0..500u32 {
        assert!(fast.remove(&key.to_be_bytes(), key));
    }
    assert!(fast.index.is_empty());
    for key in 0..500u32 {
        let found = copy.find(good(&key.to_be_bytes()), |held| held == key);
        assert_eq!(found, Some(key));
    }
}
