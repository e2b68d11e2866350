//! Prefixes of addresses, and tables of them where the longest one wins.

use crate::scope::{Miss, Scopes};
use core::fmt;
use tables::lpm::Lpm;
use wire::ip;

/// Length in bits of the prefix of all IPv4-mapped addresses.
const V4_LEN: u8 = 96;

/// The first `len` bits of 128; IPv4 in its mapped form, so that its lengths are 96 to 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The bits; those beyond `len` do not matter.
    pub addr: u128,
    /// How many of them count, 0 to 128.
    pub len: u8,
}

impl Prefix {
    /// Every address of both families.
    pub const ANY: Prefix = Prefix { addr: 0, len: 0 };

    /// The bits that count.
    #[inline]
    pub const fn mask(self) -> u128 {
        match self.len {
            0 => 0,
            1..=127 => !(u128::MAX >> self.len),
            _ => u128::MAX,
        }
    }
}

/// `any`, `10.0.0.0/24`, `fd00::/64`.
impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = self.addr & self.mask();
        if self.len == 0 {
            f.write_str("any")
        } else if self.len >= V4_LEN && ip::is_v4(network) {
            write!(f, "{}/{}", ip::from_bits(network), self.len.min(128) - V4_LEN)
        } else {
            write!(f, "{}/{}", core::net::Ipv6Addr::from_bits(network), self.len.min(128))
        }
    }
}

/// An entry of a [`Table`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<A> {
    /// The entry's id.
    pub entry: u32,
    /// The addresses that it is for.
    pub prefix: Prefix,
    /// What it says of them.
    pub action: A,
}

/// One scope of a table whose longest matching prefix wins. The families are apart: `::/0` does not cover IPv4.
#[derive(Clone)]
pub struct Table<A> {
    lpm: Lpm,
    rows: Vec<Row<A>>,
    miss: Miss,
}

impl<A> Table<A> {
    /// Builds it from its entries. Of two with one prefix, the lower id counts.
    pub fn build(rows: impl IntoIterator<Item = Row<A>>, miss: Miss) -> Self {
        let mut rows: Vec<Row<A>> = rows.into_iter().collect();
        rows.sort_unstable_by_key(|row| core::cmp::Reverse(row.entry));
        let mut lpm = Lpm::new();
        for (index, row) in rows.iter().enumerate() {
            lpm.insert(row.prefix.addr, row.prefix.len, index as u32);
        }
        Table { lpm, rows, miss }
    }

    /// The entry with the longest prefix that covers `addr`, or how a miss is answered.
    #[inline]
    pub fn lookup(&self, addr: u128) -> Result<&Row<A>, Miss> {
        self.lpm.lookup(addr).map(|(_, index)| &self.rows[index as usize]).ok_or(self.miss)
    }
}

impl<A> Scopes<Table<A>> {
    /// The entry of a scope with the longest prefix that covers `addr`, or how a miss is answered.
    #[inline]
    pub fn find(&self, scope: u32, addr: u128) -> Result<&Row<A>, Miss> {
        self.get(scope)?.lookup(addr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tables::reference::LinearLpm;

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix { addr: ip::to_bits(text.parse().unwrap()), len }
    }

    #[test]
    fn prefixes_in_words() {
        let rows = [
            (Prefix::ANY, "any"),
            (prefix("0.0.0.0", 96), "0.0.0.0/0"),
            (prefix("10.1.2.3", 104), "10.0.0.0/8"),
            (prefix("10.1.2.3", 128), "10.1.2.3/32"),
            (prefix("fd00::1", 64), "fd00::/64"),
            (prefix("fd00::1", 128), "fd00::1/128"),
        ];
        for (prefix, text) in rows {
            assert_eq!(prefix.to_string(), text);
        }
    }

    #[test]
    fn the_lower_id_counts_of_two_with_one_prefix() {
        let row = |entry| Row { entry, prefix: prefix("10.0.0.0", 104), action: () };
        for rows in [[row(4), row(9)], [row(9), row(4)]] {
            let table = Table::build(rows, Miss::Decide);
            assert_eq!(table.lookup(ip::to_bits("10.9.9.9".parse().unwrap())).map(|row| row.entry), Ok(4));
        }
    }

    proptest! {
        #[test]
        fn lookup_equals_the_reference(
            prefixes in proptest::collection::vec((0u128..64, 110u8..=128), 0..20),
            addresses in proptest::collection::vec(0u128..64, 1..20),
            v4: bool,
        ) {
            let base = if v4 { ip::V4_MAPPED } else { 0xfd00 << 112 };
            let mut reference = LinearLpm::default();
            let mut rows = Vec::new();
            for (entry, (bits, len)) in prefixes.into_iter().enumerate() {
                let prefix = Prefix { addr: base | bits, len };
                // The first of two equal prefixes has the lower id.
                let held = reference.insert(prefix.addr, len, entry as u32);
                if let Some(held) = held {
                    reference.insert(prefix.addr, len, held);
                }
                rows.push(Row { entry: entry as u32, prefix, action: entry });
            }
            let table = Table::build(rows, Miss::Punt);
            for bits in addresses {
                let expected = reference.lookup(base | bits).map(|(_, entry)| entry).ok_or(Miss::Punt);
                prop_assert_eq!(table.lookup(base | bits).map(|row| row.entry), expected);
            }
        }
    }
}
