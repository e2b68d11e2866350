//! Verdicts, interned: connections with the same answer for the same reasons share one, and with it its counters.
//!
//! The hits of an entry are the sum over the verdicts that met it, so that they are exact and do not end with a connection.

use crate::judge::Hits;
use packet::Count;
use std::collections::HashMap;

/// A verdict's place in its [`Verdicts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VerdictId(pub u32);

struct Slot {
    hits: Hits,
    users: u32,
    count: Count,
}

/// The verdicts of one thread.
#[derive(Default)]
pub struct Verdicts {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_hits: HashMap<Hits, u32>,
    ended: HashMap<u32, Count>,
}

impl Verdicts {
    /// Takes a share in the verdict with these hits; each share is given back by [`release`](Self::release).
    pub fn intern(&mut self, hits: &Hits) -> VerdictId {
        if let Some(&id) = self.by_hits.get(hits) {
            self.slots[id as usize].users += 1;
            return VerdictId(id);
        }
        let slot = Slot { hits: *hits, users: 1, count: Count::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.by_hits.insert(*hits, id);
        VerdictId(id)
    }

    /// Counts frames under a verdict.
    #[inline]
    pub fn count(&mut self, id: VerdictId, count: Count) {
        self.slots[id.0 as usize].count += count;
    }

    /// Counts one packet that founds no connection.
    pub fn count_once(&mut self, hits: &Hits, count: Count) {
        for &entry in hits.as_slice() {
            *self.ended.entry(entry).or_default() += count;
        }
    }

    /// The hits of a verdict.
    pub fn hits(&self, id: VerdictId) -> Hits {
        self.slots[id.0 as usize].hits
    }

    /// Gives a share back; the last one moves the counts to the entries themselves.
    pub fn release(&mut self, id: VerdictId) {
        let slot = &mut self.slots[id.0 as usize];
        slot.users -= 1;
        if slot.users == 0 {
            let (hits, count) = (slot.hits, slot.count);
            self.by_hits.remove(&hits);
            self.free.push(id.0);
            slot.count = Count::default();
            self.count_once(&hits, count);
        }
    }

    /// Every entry's hits so far.
    pub fn totals(&self) -> HashMap<u32, Count> {
        let mut totals = self.ended.clone();
        for slot in self.slots.iter().filter(|slot| slot.users > 0) {
            for &entry in slot.hits.as_slice() {
                *totals.entry(entry).or_default() += slot.count;
            }
        }
        totals
    }

    /// Verdicts in use.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether none is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(entries: &[u32]) -> Hits {
        let mut hits = Hits::default();
        entries.iter().for_each(|&e| hits.push(e));
        hits
    }

    fn frames(n: u64) -> Count {
        Count { frames: n, packets: n, bytes: 60 * n }
    }

    #[test]
    fn hits_outlive_the_connections_that_made_them() {
        let mut verdicts = Verdicts::default();
        let (a, b) = (verdicts.intern(&hits(&[1, 2])), verdicts.intern(&hits(&[1, 3])));
        assert_eq!(verdicts.intern(&hits(&[1, 2])), a, "the same hits share one verdict");
        verdicts.count(a, frames(5));
        verdicts.count(b, frames(7));
        verdicts.release(a);
        verdicts.release(a);
        verdicts.count_once(&hits(&[3]), frames(1));
        assert_eq!(verdicts.len(), 1);
        let totals = verdicts.totals();
        assert_eq!(totals[&1], frames(12));
        assert_eq!(totals[&2], frames(5));
        assert_eq!(totals[&3], frames(8));
        let again = verdicts.intern(&hits(&[1, 2]));
        verdicts.count(again, frames(1));
        assert_eq!(verdicts.totals()[&2], frames(6), "a reused place starts from nothing and loses nothing");
    }
}
