//! A walk over all prefixes.

use super::{Lpm, Node, STRIDE, TrieKey, V4_ROOT, V6_ROOT, rank};

/// Iterator over (prefix, length, value), from [`Lpm::iter`].
pub struct Iter<'a> {
    table: &'a Lpm,
    /// Nodes still to visit, with the root above them.
    pending: Vec<(u32, &'a Node)>,
    root: u32,
    node: &'a Node,
    /// The prefixes of `node` still to give.
    prefixes: u64,
}

impl<'a> Iter<'a> {
    pub(super) fn new(table: &'a Lpm) -> Self {
        let mut iter = Self {
            table,
            pending: vec![(V6_ROOT, table.nodes.get(V6_ROOT))],
            root: V4_ROOT,
            node: table.nodes.get(V4_ROOT),
            prefixes: 0,
        };
        iter.visit(V4_ROOT, table.nodes.get(V4_ROOT));
        iter
    }

    fn visit(&mut self, root: u32, node: &'a Node) {
        (self.root, self.node, self.prefixes) = (root, node, node.prefixes);
        for child in 0..node.children.count_ones() {
            self.pending.push((root, self.table.nodes.get(node.nodes_at + child)));
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = (u128, u8, u32);

    fn next(&mut self) -> Option<Self::Item> {
        while self.prefixes == 0 {
            let (root, node) = self.pending.pop()?;
            self.visit(root, node);
        }
        let bit = self.prefixes.trailing_zeros();
        self.prefixes &= self.prefixes - 1;
        let more = bit.ilog2() as u8;
        let chunk = u128::from(bit ^ 1 << more) << (STRIDE - more);
        // The last stride of 128 bits is not whole: what it lacks is zero.
        let shift = i32::from(128 - STRIDE) - i32::from(self.node.depth);
        let bits = if shift >= 0 { chunk << shift } else { chunk >> -shift };
        let key = TrieKey { root: self.root, bits: self.node.path | bits, len: self.node.depth + more };
        let value = *self.table.values.get(self.node.values_at + rank(self.node.prefixes, bit));
        Some((key.prefix(), key.address_len(key.len), value))
    }
}
