//! Profiles: what a device can hold, and how fast it takes commands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::ConfigError;
use crate::reader::{self, Reader};
use crate::report::Report;
use crate::{decode, schema, tree};

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
    /// The built-in profiles: name and file.
    pub const BUILT_IN: [(&'static str, &'static str); 2] = [
        ("unlimited", include_str!("../profiles/unlimited.toml")),
        ("tiny", include_str!("../profiles/tiny.toml")),
    ];

    /// Reads a profile from TOML or JSON; `file` names it in errors.
    ///
    /// # Errors
    /// All errors of the text, in its order.
    pub fn parse(text: &str, file: &str) -> Result<Profile, Vec<ConfigError>> {
        let mut report = Report::new(file, text);
        let profile = match tree::parse(text) {
            Ok(root) => Profile::read(&mut report, &root),
            Err(errors) => {
                report.syntax(errors);
                Profile::default()
            }
        };
        report.finish().map(|_| profile)
    }

    fn read(report: &mut Report, root: &tree::Node) -> Profile {
        let r = Reader::new(report, &schema::PROFILE, root, "");
        decode::schema_version(report, &r);
        let default = Profile::default();
        let mut tables = BTreeMap::new();
        if let Some((node, path)) = r.table("tables") {
            let r = Reader::new(report, &schema::PROFILE_TABLES, node, &path);
            for table in TABLES {
                let limit = r.optional(report, table, reader::integer(0, u32::MAX));
                tables.extend(limit.map(|limit| (table.to_string(), limit)));
            }
        }
        Profile {
            name: r.required(report, "name", reader::name).unwrap_or_default(),
            description: r.optional(report, "description", reader::string).unwrap_or_default(),
            insert_rate: r.optional(report, "insert_rate", reader::integer(0, u32::MAX)).unwrap_or(0),
            queue: r.optional(report, "queue", reader::integer(1, 1 << 20)).unwrap_or(default.queue),
            tables,
        }
    }

    /// The built-in profile of that name.
    pub fn built_in(name: &str) -> Option<Profile> {
        let (_, text) = Profile::BUILT_IN.iter().find(|(n, _)| *n == name)?;
        Profile::parse(text, name).ok()
    }

    /// Largest number of entries of a table, `None` when it has no limit.
    pub fn limit(&self, table: &str) -> Option<u32> {
        self.tables.get(table).copied()
    }
}

impl Default for Profile {
    /// A profile without a name and without limits.
    fn default() -> Profile {
        Profile {
            name: String::new(),
            description: String::new(),
            insert_rate: 0,
            queue: 4096,
            tables: BTreeMap::new(),
        }
    }
}
