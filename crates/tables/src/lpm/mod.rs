//! Longest prefix match of IP addresses to `u32`.
//!
//! Addresses are `u128`, IPv4 as v4-mapped (`::ffff:a.b.c.d`), so IPv4 lengths are 96..=128. The
//! two families are apart: an IPv4 address matches IPv4 prefixes only. `::ffff:0:0/96` is the
//! default route of IPv4, `::/0` that of IPv6.
//!
//! The structure is a trie of 6-bit strides, path-compressed. A node is one cache line: a bitmap
//! of the prefixes that end in its stride and one of its children, each the rank into a block of
//! values or nodes. A lookup reads one line per node, and the value at the end; a table of a few
//! prefixes takes one or two KiB.

mod blocks;
mod iter;

use blocks::Blocks;
pub use iter::Iter;

use crate::prefetch;

/// Bits that a node resolves.
const STRIDE: u8 = 6;
/// Lookups of a batch that are under way together.
const LANES: usize = 16;
/// IPv4 addresses stand below this many zero bits in their trie, so that /24 and /30 end a
/// stride instead of beginning one.
const V4_SHIFT: u8 = 5;
/// Length of the v4-mapped prefix.
const V4_BITS_ABOVE: u8 = 96;
/// The upper 96 bits of a v4-mapped address.
const V4_MAPPED: u128 = 0xffff;

/// The roots' places among the nodes.
const V4_ROOT: u32 = 0;
const V6_ROOT: u32 = 1;

/// A table of prefixes. A clone is two copies of flat memory.
#[derive(Clone)]
pub struct Lpm {
    nodes: Blocks<Node>,
    values: Blocks<u32>,
    len: usize,
}

/// The prefixes that begin with the first `depth` bits of `path` and end within the stride.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Node {
    /// The bits above `depth`; the others are zero.
    path: u128,
    /// Bit `1 << l | b`: the prefix of `l` more bits, `b`.
    prefixes: u64,
    /// Bit `c`: a child whose next six bits are `c`.
    children: u64,
    /// Where the children's and the prefixes' blocks begin, in the order of their bits.
    nodes_at: u32,
    values_at: u32,
    /// A multiple of the stride.
    depth: u8,
}

/// A prefix or address as a family's trie knows it.
#[derive(Clone, Copy)]
struct TrieKey {
    root: u32,
    bits: u128,
    len: u8,
}

impl Default for Lpm {
    fn default() -> Self {
        Self::new()
    }
}

impl Lpm {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let mut nodes = Blocks::default();
        let at = nodes.allocate(2);
        debug_assert_eq!(at, V4_ROOT);
        Self { nodes, values: Blocks::default(), len: 0 }
    }

    /// Prefixes held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no prefix is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.nodes.memory_bytes() + self.values.memory_bytes()
    }

    /// The longest prefix that covers `address`: its length and its value.
    #[inline]
    #[must_use]
    pub fn lookup(&self, address: u128) -> Option<(u8, u32)> {
        let mut walk = Walk::new(self, address);
        while let Some(next) = walk.step(self) {
            walk.node = next;
        }
        walk.found(self)
    }

    /// Looks `addresses` up together, so that their cache misses overlap, and writes the answer
    /// to each, as [`lookup`](Self::lookup) gives it, to the same place of `found`. The shorter of
    /// the two slices decides how many.
    pub fn lookup_batch(&self, addresses: &[u128], found: &mut [Option<(u8, u32)>]) {
        let Some(&first) = addresses.first() else { return };
        let mut walks = [Walk::new(self, first); LANES];
        for (addresses, found) in addresses.chunks(LANES).zip(found.chunks_mut(LANES)) {
            let mut walking = 0u32;
            for (lane, &address) in addresses.iter().enumerate() {
                walks[lane] = Walk::new(self, address);
                walking |= 1 << lane;
            }
            while walking != 0 {
                let mut lanes = walking;
                while lanes != 0 {
                    let lane = lanes.trailing_zeros() as usize;
                    lanes &= lanes - 1;
                    match walks[lane].step(self) {
                        Some(next) => {
                            prefetch(next);
                            walks[lane].node = next;
                        }
                        None => walking &= !(1 << lane),
                    }
                }
            }
            for (walk, found) in walks.iter().zip(found) {
                *found = walk.found(self);
            }
        }
    }

    /// Sets the value of `prefix`/`len` and returns the one before. Bits of `prefix` beyond
    /// `len` do not matter; a `len` above 128 counts as 128.
    pub fn insert(&mut self, prefix: u128, len: u8, value: u32) -> Option<u32> {
        let key = TrieKey::of(prefix, len);
        let mut at = key.root;
        loop {
            let node = *self.nodes.get(at);
            if key.len < node.depth + STRIDE {
                return self.set_value(at, key, value);
            }
            let chunk = chunk(key.bits, node.depth) as u32;
            let child_at = node.nodes_at + rank(node.children, chunk);
            if node.children >> chunk & 1 == 0 {
                at = self.add_child(at, chunk, Node::at(key.bits, key.len));
                continue;
            }
            let child = *self.nodes.get(child_at);
            let common = common_len(key.bits, child.path).min(key.len);
            if common < child.depth {
                self.split(child_at, common);
            }
            at = child_at;
        }
    }

    /// Removes `prefix`/`len` and returns its value.
    pub fn remove(&mut self, prefix: u128, len: u8) -> Option<u32> {
        let key = TrieKey::of(prefix, len);
        let mut at = key.root;
        let mut parent = None;
        loop {
            let node = self.nodes.get(at);
            if key.len < node.depth || (key.bits ^ node.path) & upper(node.depth) != 0 {
                return None;
            }
            if key.len < node.depth + STRIDE {
                break;
            }
            let chunk = chunk(key.bits, node.depth) as u32;
            if node.children >> chunk & 1 == 0 {
                return None;
            }
            parent = Some((at, chunk));
            at = node.nodes_at + rank(node.children, chunk);
        }
        let value = self.take_value(at, key)?;
        if let Some((parent, chunk)) = parent {
            let node = self.nodes.get(at);
            if node.prefixes == 0 && node.children == 0 {
                self.remove_child(parent, chunk);
                if parent != key.root {
                    self.collapse(parent);
                }
            } else {
                self.collapse(at);
            }
        }
        Some(value)
    }

    /// The prefixes as (prefix, length, value), in no particular order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(self)
    }

    fn set_value(&mut self, at: u32, key: TrieKey, value: u32) -> Option<u32> {
        let node = self.nodes.get_mut(at);
        let bit = node.prefix_bit(key);
        let rank = rank(node.prefixes, bit);
        if node.prefixes >> bit & 1 == 1 {
            let held = self.values.get_mut(node.values_at + rank);
            return Some(std::mem::replace(held, value));
        }
        node.values_at = self.values.insert(node.values_at, node.prefixes.count_ones(), rank, value);
        node.prefixes |= 1 << bit;
        self.len += 1;
        None
    }

    fn take_value(&mut self, at: u32, key: TrieKey) -> Option<u32> {
        let node = self.nodes.get_mut(at);
        let bit = node.prefix_bit(key);
        if node.prefixes >> bit & 1 == 0 {
            return None;
        }
        let rank = rank(node.prefixes, bit);
        let value = *self.values.get(node.values_at + rank);
        node.values_at = self.values.remove(node.values_at, node.prefixes.count_ones(), rank);
        node.prefixes &= !(1 << bit);
        self.len -= 1;
        Some(value)
    }

    /// Adds `child` and returns its place.
    fn add_child(&mut self, at: u32, chunk: u32, child: Node) -> u32 {
        let mut node = *self.nodes.get(at);
        let rank = rank(node.children, chunk);
        node.nodes_at = self.nodes.insert(node.nodes_at, node.children.count_ones(), rank, child);
        node.children |= 1 << chunk;
        *self.nodes.get_mut(at) = node;
        node.nodes_at + rank
    }

    fn remove_child(&mut self, at: u32, chunk: u32) {
        let mut node = *self.nodes.get(at);
        let rank = rank(node.children, chunk);
        node.nodes_at = self.nodes.remove(node.nodes_at, node.children.count_ones(), rank);
        node.children &= !(1 << chunk);
        *self.nodes.get_mut(at) = node;
    }

    /// Puts a node of the first `common` bits in the place of a deeper one, above it.
    fn split(&mut self, at: u32, common: u8) {
        let below = *self.nodes.get(at);
        *self.nodes.get_mut(at) = Node::at(below.path, common);
        let depth = self.nodes.get(at).depth;
        self.add_child(at, chunk(below.path, depth) as u32, below);
    }

    /// Puts the only child of a node without prefixes in its place.
    fn collapse(&mut self, at: u32) {
        let node = *self.nodes.get(at);
        if node.prefixes == 0 && node.children.is_power_of_two() {
            *self.nodes.get_mut(at) = *self.nodes.get(node.nodes_at);
            self.nodes.remove(node.nodes_at, 1, 0);
        }
    }
}

/// A lookup on its way.
#[derive(Clone, Copy)]
struct Walk<'a> {
    key: TrieKey,
    node: &'a Node,
    /// The longest prefix so far: its node and its bit there.
    best: Option<(&'a Node, u32)>,
}

impl<'a> Walk<'a> {
    #[inline]
    fn new(table: &'a Lpm, address: u128) -> Self {
        let key = TrieKey::of(address, 128);
        Self { key, node: table.nodes.get(key.root), best: None }
    }

    /// Takes what `node` knows, and returns the node to go on with.
    #[inline]
    fn step(&mut self, table: &'a Lpm) -> Option<&'a Node> {
        let node = self.node;
        if (self.key.bits ^ node.path) & upper(node.depth) != 0 {
            return None;
        }
        let chunk = chunk(self.key.bits, node.depth);
        let covering = node.prefixes & COVERING[chunk];
        if covering != 0 {
            self.best = Some((node, 63 - covering.leading_zeros()));
        }
        let below = node.children >> chunk & 1 == 1;
        below.then(|| table.nodes.get(node.nodes_at + rank(node.children, chunk as u32)))
    }

    #[inline]
    fn found(&self, table: &Lpm) -> Option<(u8, u32)> {
        let (node, bit) = self.best?;
        let value = *table.values.get(node.values_at + rank(node.prefixes, bit));
        Some((self.key.address_len(node.depth + bit.ilog2() as u8), value))
    }
}

impl Node {
    /// An empty node for a key of `len` bits.
    fn at(bits: u128, len: u8) -> Self {
        let depth = len / STRIDE * STRIDE;
        Self { path: bits & upper(depth), depth, ..Self::default() }
    }

    /// The bit of a key that ends in this node.
    fn prefix_bit(&self, key: TrieKey) -> u32 {
        let more = u32::from(key.len - self.depth);
        1 << more | (chunk(key.bits, self.depth) >> (u32::from(STRIDE) - more)) as u32
    }
}

impl TrieKey {
    #[inline]
    fn of(prefix: u128, len: u8) -> Self {
        if len >= V4_BITS_ABOVE && prefix >> 32 == V4_MAPPED {
            let len = len.min(128) - V4_BITS_ABOVE + V4_SHIFT;
            Self { root: V4_ROOT, bits: prefix << 96 >> V4_SHIFT & upper(len), len }
        } else {
            let len = len.min(128);
            Self { root: V6_ROOT, bits: prefix & upper(len), len }
        }
    }

    /// A length in this trie as one of the `u128` address.
    #[inline]
    fn address_len(self, len: u8) -> u8 {
        if self.root == V4_ROOT { len + V4_BITS_ABOVE - V4_SHIFT } else { len }
    }

    /// The prefix that the key came from.
    fn prefix(self) -> u128 {
        if self.root == V4_ROOT { V4_MAPPED << 32 | self.bits << V4_SHIFT >> 96 } else { self.bits }
    }
}

/// For each six bits, the prefixes of up to five bits that cover them, as bits of
/// [`Node::prefixes`]: the highest one is the longest.
const COVERING: [u64; 64] = {
    let mut covering = [0; 64];
    let mut chunk = 0;
    while chunk < 64 {
        let mut len = 0;
        while len < STRIDE {
            covering[chunk] |= 1 << (1 << len | chunk >> (STRIDE - len));
            len += 1;
        }
        chunk += 1;
    }
    covering
};

/// The six bits after `depth`.
#[inline]
fn chunk(bits: u128, depth: u8) -> usize {
    (bits << depth >> (128 - STRIDE)) as usize
}

/// A mask of the first `len` bits.
#[inline]
fn upper(len: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}

/// How many bits of `bitmap` stand below `bit`.
#[inline]
fn rank(bitmap: u64, bit: u32) -> u32 {
    (bitmap & ((1 << bit) - 1)).count_ones()
}

fn common_len(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}
