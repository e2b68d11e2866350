//! Identifiers and table entries, neutral to the program.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A table of the running program, as numbered by its [`schema`](crate::schema).
    TableId(u16)
);
id!(
    /// An action of the running program, as numbered by its [`schema`](crate::schema).
    ActionId(u16)
);
id!(
    /// An entry, chosen by the controller, unique over all tables of a device.
    EntryId(u32)
);
id!(
    /// A command on its way; completions carry it back. 0 is never used by a command.
    CommandId(u64)
);
id!(
    /// The state of a device's tables: each commit moves it forward, nothing moves it back.
    Version(u64)
);
id!(
    /// A life of a device's tables: each reset that loses entries starts a new one.
    Generation(u64)
);
id!(
    /// A controller's connection; a newer session fences the older ones.
    Session(u64)
);

/// The rule that an entry was compiled from. A rule may have several entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct RuleRef {
    /// The controller's number of the rule; kept over restarts of either side.
    pub rule: u32,
    /// Counts changes of the rule's content.
    pub revision: u32,
}

/// Which of a device's two sets of tables an entry goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The bounded tables of the device.
    Device,
    /// The full tables of the host path.
    Host,
}

/// How one field of a table's key is matched. Values are right-aligned in 128 bits; IPv4 addresses
/// are written as IPv4-mapped IPv6 (`::ffff:a.b.c.d`), so their prefix lengths run from 96 to 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FieldMatch {
    /// Any value.
    Any,
    /// Exactly this value.
    Exact(u128),
    /// The first `len` of 128 bits; the other bits of `value` are zero.
    Prefix {
        /// The prefix.
        value: u128,
        /// Its length in bits, 0 to 128.
        len: u8,
    },
    /// `low..=high`.
    Range {
        /// The lowest value that matches.
        low: u64,
        /// The highest value that matches.
        high: u64,
    },
}

impl FieldMatch {
    /// Whether `value` matches.
    pub fn matches(&self, value: u128) -> bool {
        match *self {
            FieldMatch::Any => true,
            FieldMatch::Exact(v) => v == value,
            FieldMatch::Prefix { value: v, len } => (value ^ v) & prefix_mask(len) == 0,
            FieldMatch::Range { low, high } => (low as u128..=high as u128).contains(&value),
        }
    }

    /// Whether some value matches both.
    pub fn overlaps(&self, other: &FieldMatch) -> bool {
        use FieldMatch::*;
        match (*self, *other) {
            (Any, _) | (_, Any) => true,
            (Exact(v), m) | (m, Exact(v)) => m.matches(v),
            (Prefix { value: a, len: m }, Prefix { value: b, len: n }) => {
                (a ^ b) & prefix_mask(m.min(n)) == 0
            }
            (Range { low: a, high: b }, Range { low: c, high: d }) => a <= d && c <= b,
            (Prefix { value, len }, Range { low, high }) | (Range { low, high }, Prefix { value, len }) => {
                let last = value | !prefix_mask(len);
                value <= high as u128 && (low as u128) <= last
            }
        }
    }
}

/// The mask of the first `len` of 128 bits.
pub fn prefix_mask(len: u8) -> u128 {
    match len {
        0 => 0,
        1..=127 => !(u128::MAX >> len),
        _ => u128::MAX,
    }
}

/// An action and its parameters, in the order of the program's [`schema`](crate::schema).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Action {
    /// Which action.
    pub id: ActionId,
    /// Its parameters, each right-aligned in 128 bits.
    pub params: Vec<u128>,
}

/// One entry of one table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Unique over all tables of the device.
    pub id: EntryId,
    /// The rule that it was compiled from.
    pub rule: RuleRef,
    /// The table.
    pub table: TableId,
    /// The part of the table: an ACL group, the routes of an ENI, a VNET. Entries of different scopes never
    /// compete for a packet.
    pub scope: u32,
    /// Lower numbers first; equal ones by the lower id. Tables whose order follows from the match (exact,
    /// longest prefix) have 0.
    pub priority: u32,
    /// One match per key field of the table.
    pub matches: Vec<FieldMatch>,
    /// What to do on a match.
    pub action: Action,
}

impl Entry {
    /// Whether some packet matches both entries (same table, same scope, every field overlaps).
    pub fn overlaps(&self, other: &Entry) -> bool {
        self.table == other.table
            && self.scope == other.scope
            && self.matches.len() == other.matches.len()
            && self.matches.iter().zip(&other.matches).all(|(a, b)| a.overlaps(b))
    }
}

/// What a scope of a table answers when no entry matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Miss {
    /// Not decidable here: the packet goes to the host path. Holds for every scope never named.
    Punt,
    /// The scope is complete: the program's own answer to a miss holds.
    Decide,
}
