//! Exact match: a 64-bit hash to `u32` handles. Keys live with the caller, usually in a slab
//! that the handle indexes, so one index serves any key.
//!
//! A bucket is one 64-byte cache line: ten 16-bit tags, ten handles and a count of the entries
//! that overflowed past it into the following buckets. A miss costs one line unless that count
//! is above zero; removal leaves no tombstone.
//!
//! Growth is incremental: a table of twice the size is allocated (zeroed lazily by the system
//! where large) and every insert moves one bucket; until all are moved, lookups read both.
//!
//! The hash must be well mixed in all 64 bits (low bits choose the bucket, the upper 16 are the
//! tag), and keyed with a secret where strangers choose the keys.

use crate::prefetch;

/// Entries in a bucket.
const SLOTS: usize = 10;
/// Words of a bucket: three of tags (lanes 0 and 1 of the third; its lane 2 is the overflow
/// count), five of handles.
type Line = [u64; WORDS];
const WORDS: usize = 8;
const LINE_BYTES: usize = 64;
/// Tag words before the handles.
const TAG_WORDS: usize = 3;
/// The lowest bit of each 16-bit lane.
const LANES: u64 = 0x0001_0001_0001_0001;
/// The bits of the third tag word that hold tags.
const LAST_TAGS: u64 = 0xffff_ffff;
/// The overflow count's place in the third tag word.
const OVERFLOW_SHIFT: u32 = 32;

/// A hash index of `u32` handles.
#[derive(Clone)]
pub struct Index {
    current: Table,
    /// The smaller table that is being emptied into `current`.
    old: Option<Migration>,
    /// Generation of `current`; `old` is of the one before.
    generation: u32,
}

#[derive(Clone)]
struct Migration {
    table: Table,
    next_bucket: usize,
}

/// A place in a pass over an [`Index`]; the default is the start of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    generation: u32,
    bucket: usize,
}

impl Index {
    /// An index that holds `entries` without growing.
    #[must_use]
    pub fn with_capacity(entries: usize) -> Self {
        Self { current: Table::for_entries(entries), old: None, generation: 1 }
    }

    /// Entries held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.current.len + self.old.as_ref().map_or(0, |old| old.table.len)
    }

    /// Whether no entry is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries that fit before the next growth.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.current.limit()
    }

    /// Bytes of the tables.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.current.memory_bytes() + self.old.as_ref().map_or(0, |old| old.table.memory_bytes())
    }

    /// Starts to load the bucket of `hash` into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.current.prefetch(hash);
        if let Some(old) = &self.old {
            old.table.prefetch(hash);
        }
    }

    /// The first handle under `hash` for which `is_key` holds. `is_key` sees every handle whose
    /// tag agrees: it must compare the keys. With `|_| true` this is the likely handle, good
    /// for a [`prefetch`] of the caller's record.
    #[inline]
    pub fn find(&self, hash: u64, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        if let Some((_, handle)) = self.current.find(hash, &mut is_key) {
            return Some(handle);
        }
        let old = self.old.as_ref()?;
        old.table.find(hash, is_key).map(|(_, handle)| handle)
    }

    /// Adds `handle` under `hash`, without looking whether the key is there already. `rehash`
    /// gives the hash of a handle held, and is called for at most one bucket's handles.
    pub fn insert(&mut self, hash: u64, handle: u32, rehash: impl Fn(u32) -> u64) {
        if self.len() >= self.current.limit() {
            self.grow();
        }
        self.migrate(1, rehash);
        self.current.insert(hash, handle);
    }

    /// Removes `handle`, which was inserted under `hash`; false if it is not there.
    pub fn remove(&mut self, hash: u64, handle: u32) -> bool {
        if self.current.remove(hash, handle) {
            return true;
        }
        self.old.as_mut().is_some_and(|old| old.table.remove(hash, handle))
    }

    /// Moves up to `buckets` buckets of a growth under way, and returns whether more remain:
    /// for idle time, so that lookups read one table again. `rehash` as for
    /// [`insert`](Self::insert).
    pub fn migrate(&mut self, buckets: usize, rehash: impl Fn(u32) -> u64) -> bool {
        let Some(old) = &mut self.old else { return false };
        for _ in 0..buckets {
            for handle in old.table.handles(old.next_bucket) {
                let hash = rehash(handle);
                let moved = old.table.remove(hash, handle);
                debug_assert!(moved, "rehash gave another hash than insert had");
                self.current.insert(hash, handle);
            }
            old.next_bucket += 1;
            if old.next_bucket > old.table.mask {
                self.old = None;
                return false;
            }
        }
        true
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.old = None;
        self.current.words.fill(0);
        self.current.len = 0;
    }

    /// Calls `f` with the handles of up to `buckets` buckets (at most ten each) from `cursor`
    /// on, and returns where to go on, or `None` when the pass is complete. An entry held
    /// during the whole pass is seen at least once, and more than once only if the index grew.
    pub fn scan(&self, cursor: Cursor, buckets: usize, mut f: impl FnMut(u32)) -> Option<Cursor> {
        let Cursor { mut generation, mut bucket } = cursor;
        let oldest = self.generation - u32::from(self.old.is_some());
        if generation < oldest {
            (generation, bucket) = (oldest, 0);
        }
        for _ in 0..buckets {
            let table = match &self.old {
                Some(old) if generation < self.generation => &old.table,
                _ => &self.current,
            };
            table.handles(bucket).for_each(&mut f);
            bucket += 1;
            if bucket > table.mask {
                if generation == self.generation {
                    return None;
                }
                (generation, bucket) = (self.generation, 0);
            }
        }
        Some(Cursor { generation, bucket })
    }

    fn grow(&mut self) {
        // n buckets were full at 7.5n entries, the table being filled is full at 15n, and n
        // inserts emptied the one before.
        debug_assert!(self.old.is_none(), "growth outran migration");
        let larger = Table::with_buckets(2 * (self.current.mask + 1));
        let table = std::mem::replace(&mut self.current, larger);
        self.old = Some(Migration { table, next_bucket: 0 });
        self.generation += 1;
    }
}

/// One power-of-two array of buckets.
struct Table {
    /// The buckets, from `offset` on. Plain words, because only they are zeroed lazily by the
    /// allocator; the offset puts buckets on cache lines.
    words: Vec<u64>,
    offset: usize,
    /// Buckets - 1.
    mask: usize,
    len: usize,
}

impl Table {
    fn for_entries(entries: usize) -> Self {
        let mut buckets = entries.div_ceil(SLOTS).next_power_of_two();
        while limit(buckets) < entries {
            buckets *= 2;
        }
        Self::with_buckets(buckets)
    }

    fn with_buckets(buckets: usize) -> Self {
        let words = vec![0u64; (buckets + 1) * WORDS];
        let offset = words.as_ptr().align_offset(LINE_BYTES).min(WORDS);
        Self { words, offset, mask: buckets - 1, len: 0 }
    }

    fn limit(&self) -> usize {
        limit(self.mask + 1)
    }

    fn memory_bytes(&self) -> usize {
        self.words.len() * size_of::<u64>()
    }

    #[inline]
    fn start(&self, bucket: usize) -> usize {
        self.offset + (bucket & self.mask) * WORDS
    }

    #[inline]
    fn line(&self, bucket: usize) -> &Line {
        let start = self.start(bucket);
        // SAFETY: `bucket & mask` is at most `mask`, `offset` at most WORDS, and the vector,
        // never resized, has (mask + 2) * WORDS words; so start + WORDS is within it. A Line
        // has the alignment of its words.
        unsafe { &*self.words.as_ptr().add(start).cast::<Line>() }
    }

    #[inline]
    fn line_mut(&mut self, bucket: usize) -> &mut Line {
        let start = self.start(bucket);
        // SAFETY: in bounds and aligned as in `line`; `&mut self` makes it the only reference.
        unsafe { &mut *self.words.as_mut_ptr().add(start).cast::<Line>() }
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        prefetch(self.line(hash as usize));
    }

    /// The entry's distance from home in buckets, and its handle.
    #[inline]
    fn find(&self, hash: u64, mut is_key: impl FnMut(u32) -> bool) -> Option<(Place, u32)> {
        let home = hash as usize;
        let pattern = pattern_of(hash);
        for distance in 0..=self.mask {
            let line = self.line(home.wrapping_add(distance));
            let mut candidates = slots_with(line, pattern);
            while candidates != 0 {
                let slot = first_slot(candidates);
                let handle = handle_at(line, slot);
                if is_key(handle) {
                    return Some((Place { distance, slot }, handle));
                }
                candidates &= candidates - 1;
            }
            if overflow(line) == 0 {
                return None;
            }
        }
        None
    }

    /// The caller has made sure that a slot is free.
    fn insert(&mut self, hash: u64, handle: u32) {
        debug_assert!(self.len < (self.mask + 1) * SLOTS);
        let mut bucket = hash as usize;
        loop {
            let line = self.line_mut(bucket);
            let free = slots_with(line, 0);
            if free != 0 {
                let slot = first_slot(free);
                set_tag(line, slot, pattern_of(hash) as u16);
                set_handle(line, slot, handle);
                self.len += 1;
                return;
            }
            let passed = overflow(line).saturating_add(1);
            set_overflow(line, passed);
            bucket = bucket.wrapping_add(1);
        }
    }

    fn remove(&mut self, hash: u64, handle: u32) -> bool {
        let Some((place, _)) = self.find(hash, |held| held == handle) else {
            return false;
        };
        let home = hash as usize;
        set_tag(self.line_mut(home.wrapping_add(place.distance)), place.slot, 0);
        for distance in 0..place.distance {
            let line = self.line_mut(home.wrapping_add(distance));
            let passed = overflow(line);
            // A saturated count is no longer exact: it stays.
            if passed != u16::MAX {
                set_overflow(line, passed - 1);
            }
        }
        self.len -= 1;
        true
    }

    /// The handles in `bucket`, as they are now.
    fn handles(&self, bucket: usize) -> impl Iterator<Item = u32> + use<> {
        let line = *self.line(bucket);
        (0..SLOTS).filter(move |&slot| tag_at(&line, slot) != 0).map(move |slot| handle_at(&line, slot))
    }
}

impl Clone for Table {
    fn clone(&self) -> Self {
        let mut copy = Self::with_buckets(self.mask + 1);
        let length = (self.mask + 1) * WORDS;
        let (to, from) = (copy.offset, self.offset);
        copy.words[to..to + length].copy_from_slice(&self.words[from..from + length]);
        copy.len = self.len;
        copy
    }
}

struct Place {
    distance: usize,
    slot: usize,
}

/// Three quarters of the slots: few buckets overflow, and a probe ends.
fn limit(buckets: usize) -> usize {
    buckets * SLOTS * 3 / 4
}

/// The tag of `hash` in each lane; 0 is kept for free slots.
#[inline]
fn pattern_of(hash: u64) -> u64 {
    (hash >> 48).max(1) * LANES
}

/// The slots whose tag is `pattern`'s, one bit each: slot `4w + l` at bit `16l + w`.
#[inline]
fn slots_with(line: &Line, pattern: u64) -> u64 {
    // The top bit of each lane that is zero in `x`, exactly: no carry leaves a lane.
    let zero_lanes = |x: u64| {
        let low = LANES * 0x7fff;
        !(((x & low) + low) | x) & !low
    };
    (zero_lanes(line[0] ^ pattern) >> 15)
        | (zero_lanes(line[1] ^ pattern) >> 14)
        | ((zero_lanes(line[2] ^ pattern) & LAST_TAGS) >> 13)
}

#[inline]
fn first_slot(slots: u64) -> usize {
    let bit = slots.trailing_zeros() as usize;
    (bit % 16) * 4 + bit / 16
}

#[inline]
fn tag_at(line: &Line, slot: usize) -> u16 {
    (line[slot / 4] >> (16 * (slot % 4))) as u16
}

#[inline]
fn set_tag(line: &mut Line, slot: usize, tag: u16) {
    let shift = 16 * (slot % 4);
    let word = &mut line[slot / 4];
    *word = *word & !(0xffff << shift) | u64::from(tag) << shift;
}

#[inline]
fn handle_at(line: &Line, slot: usize) -> u32 {
    (line[TAG_WORDS + slot / 2] >> (32 * (slot % 2))) as u32
}

#[inline]
fn set_handle(line: &mut Line, slot: usize, handle: u32) {
    let shift = 32 * (slot % 2);
    let word = &mut line[TAG_WORDS + slot / 2];
    *word = *word & !(0xffff_ffff << shift) | u64::from(handle) << shift;
}

#[inline]
fn overflow(line: &Line) -> u16 {
    (line[TAG_WORDS - 1] >> OVERFLOW_SHIFT) as u16
}

#[inline]
fn set_overflow(line: &mut Line, count: u16) {
    let word = &mut line[TAG_WORDS - 1];
    *word = *word & LAST_TAGS | u64::from(count) << OVERFLOW_SHIFT;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bucket of hash 0 and what passed it.
    fn passed(index: &Index) -> u16 {
        overflow(index.current.line(0))
    }

    #[test]
    fn removal_leaves_no_trace() {
        let mut index = Index::with_capacity(100);
        for handle in 0..100 {
            index.insert(u64::from(handle % 4), handle, |_| 0);
        }
        assert!(passed(&index) > 0);
        for handle in 0..100 {
            assert!(index.remove(u64::from(handle % 4), handle));
        }
        let mask = index.current.mask;
        assert!((0..=mask).all(|bucket| index.current.line(bucket)[..TAG_WORDS] == [0; TAG_WORDS]));
    }

    #[test]
    fn a_saturated_overflow_count_loses_nothing() {
        let mut index = Index::with_capacity(100);
        for handle in 0..11 {
            index.insert(0, handle, |_| 0);
        }
        assert_eq!(passed(&index), 1);
        // As if 65,535 others had passed, and one more comes.
        set_overflow(index.current.line_mut(0), u16::MAX);
        index.insert(0, 11, |_| 0);
        assert_eq!(passed(&index), u16::MAX);
        assert!(index.remove(0, 10));
        assert_eq!(passed(&index), u16::MAX);
        assert_eq!(index.find(0, |held| held == 11), Some(11));
    }
}
