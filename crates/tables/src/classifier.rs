//! Classification by priority: ternary words and two port ranges.
//!
//! Tuple space search: rules of one shape (word masks, and which of the two ports are exact) form
//! a tuple, and one [`exact::Index`] holds the rules of all tuples under the hash of their masked
//! key. A lookup probes the tuples in the order of their best rule, and stops as soon as what it
//! found beats the best of the next. Rules under one hash form a chain in order of precedence, and
//! each is compared in full, so the hash decides speed alone. Where rules are few for their tuples
//! they are scanned in order instead.

use std::collections::BTreeMap;

use crate::exact;

/// Words of a key.
pub const WORDS: usize = 5;
/// A probe of a tuple costs about as much as the comparison of this many rules.
const RULES_PER_PROBE: usize = 8;
/// The end of a chain.
const END: u32 = u32::MAX;

/// An inclusive range of 16-bit values. One with `lo` above `hi` matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    /// The lowest value in it.
    pub lo: u16,
    /// The highest value in it.
    pub hi: u16,
}

impl PortRange {
    /// All values.
    pub const ANY: Self = Self { lo: 0, hi: u16::MAX };

    /// One value.
    #[must_use]
    pub const fn exact(port: u16) -> Self {
        Self { lo: port, hi: port }
    }

    /// Whether `port` is in it.
    #[inline]
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.lo <= port && port <= self.hi
    }
}

/// A rule. Of two that match, the one with the lower `priority` number wins; of two with the same
/// priority, the one with the lower `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What the key's words must be under `mask`.
    pub value: [u64; WORDS],
    /// The bits of the words that matter.
    pub mask: [u64; WORDS],
    /// Where the key's ports must be.
    pub ranges: [PortRange; 2],
    /// The lower number first.
    pub priority: u32,
    /// The caller's name for the rule; one rule per value.
    pub data: u32,
}

impl Rule {
    /// Whether `key` satisfies the rule.
    #[inline]
    #[must_use]
    pub fn matches(&self, key: &Key) -> bool {
        self.words_match(key) && (0..2).all(|i| self.ranges[i].contains(key.ports[i]))
    }

    #[inline]
    fn words_match(&self, key: &Key) -> bool {
        let differing = |i: usize| (key.words[i] ^ self.value[i]) & self.mask[i];
        (0..WORDS).fold(0, |bits, i| bits | differing(i)) == 0
    }

    /// What rules are ordered by: the smaller wins.
    #[inline]
    #[must_use]
    pub fn precedence(&self) -> (u32, u32) {
        (self.priority, self.data)
    }
}

/// What is looked up. The meaning of the words is the caller's: by custom the source address, the
/// destination address (two words each), then protocol and the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// The words that masks apply to.
    pub words: [u64; WORDS],
    /// The ports that ranges apply to.
    pub ports: [u16; 2],
}

/// What a lookup depended on: every key that agrees with the one looked up in these bits and
/// ports gets the same answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consulted {
    /// The union of the word masks consulted.
    pub words: [u64; WORDS],
    /// Which of the ports were.
    pub ports: [bool; 2],
}

/// A set of rules.
#[derive(Clone)]
pub struct Classifier {
    /// Rules and free places.
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The slot of each rule, by `data`.
    by_data: BTreeMap<u32, u32>,
    /// The slots of all rules, in order of precedence.
    ordered: Vec<u32>,
    /// In the order of their best rules.
    tuples: Vec<Tuple>,
    /// The first slot of each chain, by hash.
    heads: exact::Index,
}

#[derive(Clone)]
struct Slot {
    rule: Rule,
    /// Of the rule's shape and value.
    hash: u64,
    /// The next in the chain: same hash, later in precedence.
    next: u32,
}

#[derive(Clone)]
struct Tuple {
    shape: Shape,
    /// Precedence of the best rule.
    best: (u32, u32),
}

/// What rules of one tuple have in common: the bits of a key that are hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    mask: [u64; WORDS],
    exact_ports: [bool; 2],
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

impl Classifier {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_data: BTreeMap::new(),
            ordered: Vec::new(),
            tuples: Vec::new(),
            heads: exact::Index::with_capacity(0),
        }
    }

    /// Rules held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ordered.len()
    }

    /// Whether no rule is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ordered.is_empty()
    }

    /// The rules, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.ordered.iter().map(|&slot| &self.slots[slot as usize].rule)
    }

    /// Adds a rule; one with the same `data` is replaced and returned. Bits of `value` outside
    /// `mask` do not matter.
    pub fn insert(&mut self, rule: Rule) -> Option<Rule> {
        let replaced = self.remove(rule.data);
        let shape = Shape::of(&rule);
        let hash = shape.hash(&Key { words: rule.value, ports: rule.ranges.map(|range| range.lo) });
        let slot = self.store(Slot { rule, hash, next: END });
        self.by_data.insert(rule.data, slot);
        let position = self.position(rule.precedence());
        self.ordered.insert(position, slot);
        self.link(slot);
        self.join_tuple(shape, rule.precedence());
        replaced
    }

    /// Removes and returns the rule of `data`.
    pub fn remove(&mut self, data: u32) -> Option<Rule> {
        let slot = self.by_data.remove(&data)?;
        self.unlink(slot);
        self.free.push(slot);
        let rule = self.slots[slot as usize].rule;
        let position = self.position(rule.precedence());
        self.ordered.remove(position);
        self.leave_tuple(Shape::of(&rule), rule.precedence(), position);
        Some(rule)
    }

    /// The first rule in precedence that matches `key`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: &Key) -> Option<&Rule> {
        self.search(key, &mut ())
    }

    /// As [`lookup`](Self::lookup), and adds to `consulted` what the answer depended on.
    #[must_use]
    pub fn lookup_traced(&self, key: &Key, consulted: &mut Consulted) -> Option<&Rule> {
        self.search(key, consulted)
    }

    #[inline]
    fn search(&self, key: &Key, trace: &mut impl Trace) -> Option<&Rule> {
        if self.len() <= RULES_PER_PROBE * self.tuples.len() {
            return self.iter().find(|rule| matches(rule, key, trace));
        }
        let mut best: Option<&Rule> = None;
        let better = |best: Option<&Rule>, precedence| best.is_none_or(|best| precedence < best.precedence());
        for tuple in &self.tuples {
            if !better(best, tuple.best) {
                break;
            }
            trace.shape(&tuple.shape);
            let hash = tuple.shape.hash(key);
            let mut next =
                self.heads.find(hash, |slot| self.slots[slot as usize].hash == hash).unwrap_or(END);
            while let Some(slot) = self.slots.get(next as usize) {
                if !better(best, slot.rule.precedence()) {
                    break;
                }
                if matches(&slot.rule, key, trace) {
                    best = Some(&slot.rule);
                    break;
                }
                next = slot.next;
            }
        }
        best
    }

    fn store(&mut self, slot: Slot) -> u32 {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            return at;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    /// Puts a slot into its chain.
    fn link(&mut self, slot: u32) {
        let Slot { hash, rule, .. } = self.slots[slot as usize];
        let (before, after) = self.chain_around(hash, rule.precedence());
        self.slots[slot as usize].next = after;
        if before == END {
            self.replace_head(hash, after, slot);
        } else {
            self.slots[before as usize].next = slot;
        }
    }

    /// Takes a slot out of its chain.
    fn unlink(&mut self, slot: u32) {
        let Slot { hash, rule, next, .. } = self.slots[slot as usize];
        let (before, _) = self.chain_around(hash, rule.precedence());
        if before == END {
            self.replace_head(hash, slot, next);
        } else {
            self.slots[before as usize].next = next;
        }
    }

    /// The last slot of the chain of `hash` before `precedence` and the first that is not.
    fn chain_around(&self, hash: u64, precedence: (u32, u32)) -> (u32, u32) {
        let mut before = END;
        let mut after = self.heads.find(hash, |slot| self.slots[slot as usize].hash == hash).unwrap_or(END);
        while let Some(slot) = self.slots.get(after as usize) {
            if slot.rule.precedence() >= precedence {
                break;
            }
            (before, after) = (after, slot.next);
        }
        (before, after)
    }

    fn replace_head(&mut self, hash: u64, from: u32, to: u32) {
        if from != END {
            self.heads.remove(hash, from);
        }
        if to != END {
            self.heads.insert(hash, to, |slot| self.slots[slot as usize].hash);
        }
    }

    /// Where in `ordered` a rule of `precedence` stands, or would.
    fn position(&self, precedence: (u32, u32)) -> usize {
        self.ordered.partition_point(|&slot| self.slots[slot as usize].rule.precedence() < precedence)
    }

    fn join_tuple(&mut self, shape: Shape, precedence: (u32, u32)) {
        match self.tuples.iter_mut().find(|tuple| tuple.shape == shape) {
            Some(tuple) if tuple.best < precedence => return,
            Some(tuple) => tuple.best = precedence,
            None => self.tuples.push(Tuple { shape, best: precedence }),
        }
        self.tuples.sort_unstable_by_key(|tuple| tuple.best);
    }

    /// `position` is where the rule stood in `ordered`.
    fn leave_tuple(&mut self, shape: Shape, precedence: (u32, u32), position: usize) {
        let Ok(at) = self.tuples.binary_search_by_key(&precedence, |tuple| tuple.best) else { return };
        let mut later = self.ordered[position..].iter().map(|&slot| &self.slots[slot as usize].rule);
        match later.find(|rule| Shape::of(rule) == shape).map(Rule::precedence) {
            Some(next) => self.tuples[at].best = next,
            None => {
                self.tuples.remove(at);
            }
        }
        self.tuples.sort_unstable_by_key(|tuple| tuple.best);
    }
}

impl Shape {
    fn of(rule: &Rule) -> Self {
        Self { mask: rule.mask, exact_ports: rule.ranges.map(|range| range.lo == range.hi) }
    }

    /// The hash of the bits of `key` that the shape has, and of the shape.
    #[inline]
    fn hash(&self, key: &Key) -> u64 {
        let word = |i: usize| key.words[i] & self.mask[i];
        let port = |i: usize| if self.exact_ports[i] { u64::from(key.ports[i]) + 1 } else { 0 };
        let ports = port(0) << 32 | port(1);
        let sum = mix(word(0) ^ K[0], word(1) ^ K[1]) ^ mix(word(2) ^ K[2], word(3) ^ K[3]);
        mix(sum ^ K[4], word(4).rotate_left(32) ^ ports ^ K[5])
    }
}

/// Odd constants with evenly spread bits.
const K: [u64; 6] = [
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0x9e37_79b9_7f4a_7c15,
];

/// Folded multiplication.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Whether `rule` matches; what is compared is recorded.
#[inline]
fn matches(rule: &Rule, key: &Key, trace: &mut impl Trace) -> bool {
    trace.words(&rule.mask);
    if !rule.words_match(key) {
        return false;
    }
    (0..2).all(|i| {
        if rule.ranges[i] != PortRange::ANY {
            trace.port(i);
        }
        rule.ranges[i].contains(key.ports[i])
    })
}

/// What a search records, nothing (`()`) or all.
trait Trace {
    fn words(&mut self, mask: &[u64; WORDS]);
    fn port(&mut self, index: usize);
    fn shape(&mut self, shape: &Shape);
}

impl Trace for () {
    #[inline]
    fn words(&mut self, _: &[u64; WORDS]) {}
    #[inline]
    fn port(&mut self, _: usize) {}
    #[inline]
    fn shape(&mut self, _: &Shape) {}
}

impl Trace for Consulted {
    fn words(&mut self, mask: &[u64; WORDS]) {
        for (words, mask) in self.words.iter_mut().zip(mask) {
            *words |= mask;
        }
    }

    fn port(&mut self, index: usize) {
        self.ports[index] = true;
    }

    fn shape(&mut self, shape: &Shape) {
        self.words(&shape.mask);
        for (index, exact) in shape.exact_ports.into_iter().enumerate() {
            self.ports[index] |= exact;
        }
    }
}
