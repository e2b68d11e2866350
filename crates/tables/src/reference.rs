//! The oracles: what each table must answer, by linear scan. For tests; too slow for anything else.

use crate::classifier::{Key, Rule};

/// Oracle of [`exact::Index`](crate::exact::Index) together with the caller's keys.
#[derive(Clone, Debug, Default)]
pub struct ExactMap {
    entries: Vec<(Vec<u8>, u32)>,
}

impl ExactMap {
    /// The handle of `key`.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        self.entries.iter().find(|(held, _)| held == key).map(|&(_, handle)| handle)
    }

    /// Adds `key`, which is not there.
    pub fn insert(&mut self, key: &[u8], handle: u32) {
        self.entries.push((key.to_vec(), handle));
    }

    /// Removes `key` and returns its handle.
    pub fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let at = self.entries.iter().position(|(held, _)| held == key)?;
        Some(self.entries.swap_remove(at).1)
    }

    /// The handles held, sorted.
    #[must_use]
    pub fn handles(&self) -> Vec<u32> {
        let mut handles: Vec<u32> = self.entries.iter().map(|&(_, handle)| handle).collect();
        handles.sort_unstable();
        handles
    }
}

/// Oracle of [`Lpm`](crate::lpm::Lpm).
#[derive(Clone, Debug, Default)]
pub struct LinearLpm {
    entries: Vec<(u128, u8, u32)>,
}

impl LinearLpm {
    /// As [`Lpm::insert`](crate::lpm::Lpm::insert).
    pub fn insert(&mut self, prefix: u128, len: u8, value: u32) -> Option<u32> {
        let before = self.remove(prefix, len);
        self.entries.push((host_bits_cleared(prefix, len), len, value));
        before
    }

    /// As [`Lpm::remove`](crate::lpm::Lpm::remove).
    pub fn remove(&mut self, prefix: u128, len: u8) -> Option<u32> {
        let prefix = host_bits_cleared(prefix, len);
        let at = self.entries.iter().position(|&(p, l, _)| (p, l) == (prefix, len))?;
        Some(self.entries.swap_remove(at).2)
    }

    /// As [`Lpm::lookup`](crate::lpm::Lpm::lookup).
    #[must_use]
    pub fn lookup(&self, address: u128) -> Option<(u8, u32)> {
        let is_v4 = |bits: u128, len: u8| len >= 96 && bits >> 32 == 0xffff;
        self.entries
            .iter()
            .filter(|&&(prefix, len, _)| is_v4(prefix, len) == is_v4(address, 128))
            .filter(|&&(prefix, len, _)| host_bits_cleared(address, len) == prefix)
            .max_by_key(|&&(_, len, _)| len)
            .map(|&(_, len, value)| (len, value))
    }

    /// The prefixes held as (prefix, length, value), sorted.
    #[must_use]
    pub fn entries(&self) -> Vec<(u128, u8, u32)> {
        let mut entries = self.entries.clone();
        entries.sort_unstable();
        entries
    }
}

fn host_bits_cleared(prefix: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { prefix >> (128 - len) << (128 - len) }
}

/// Oracle of [`Classifier`](crate::classifier::Classifier).
#[derive(Clone, Debug, Default)]
pub struct LinearClassifier {
    /// Sorted by precedence.
    rules: Vec<Rule>,
}

impl LinearClassifier {
    /// As [`Classifier::insert`](crate::classifier::Classifier::insert).
    pub fn insert(&mut self, rule: Rule) {
        self.remove(rule.data);
        self.rules.push(rule);
        self.rules.sort_by_key(|rule| (rule.priority, rule.data));
    }

    /// As [`Classifier::remove`](crate::classifier::Classifier::remove); whether it was there.
    pub fn remove(&mut self, data: u32) -> bool {
        let before = self.rules.len();
        self.rules.retain(|rule| rule.data != data);
        self.rules.len() < before
    }

    /// The `data` of the first rule that matches.
    #[must_use]
    pub fn lookup(&self, key: &Key) -> Option<u32> {
        let matches = |rule: &&Rule| {
            let words = (0..5).all(|i| key.words[i] & rule.mask[i] == rule.value[i] & rule.mask[i]);
            let ports = (0..2).all(|i| (rule.ranges[i].lo..=rule.ranges[i].hi).contains(&key.ports[i]));
            words && ports
        };
        self.rules.iter().find(matches).map(|rule| rule.data)
    }
}
