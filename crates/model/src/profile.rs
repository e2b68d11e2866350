//! Profiles: what a device can hold, and how fast it takes commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The tables of the program `vnet` that a profile can limit, in the packet's order.
pub const TABLES: [&str; 6] = ["eni", "source", "acl", "route", "mapping", "flow"];

/// What a device can do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it stands for, in a sentence.
    pub description: String,
    /// Entries installed per second; 0: no limit.
    pub insert_rate: u32,
    /// Commands that the device's queue holds, 1 or more.
    pub queue: u32,
    /// Largest number of entries by table (one of [`TABLES`]); a table that is absent has no limit.
    pub tables: BTreeMap<String, u32>,
}

impl Profile {
    /// Largest number of entries of a table, `None` when it has no limit.
    pub fn limit(&self, table: &str) -> Option<u32> {
        self.tables.get(table).copied()
    }
}
