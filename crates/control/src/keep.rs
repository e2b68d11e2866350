//! What survives the controller: desired states, numbers, and what was confirmed last.
//!
//! Keys: `counters`, `numbers/enis`, `numbers/groups`, `rule/NAME`, `desired/current`, `desired/next`, `history/REVISION`,
//! `confirmed`, `ports`.

use crate::compile::Scope;
use crate::numbers::{Counters, Numbers, RuleRecord};
use contract::{Generation, Version};
use model::Desired;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use store::{Store, StoreError};

/// Earlier desired states that are kept.
pub const REVISIONS: u64 = 32;

/// A desired state with its origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Revision {
    /// Rises by one with each accepted change.
    pub revision: u64,
    /// Who asked for it.
    pub author: String,
    /// The text that it was read from.
    pub text: String,
    /// When it was accepted, nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
    /// What it says.
    pub desired: Desired,
}

/// What the device held when it was confirmed last. Misses are not dumped, so they are known only while this holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confirmed {
    pub generation: Generation,
    pub version: Version,
    pub host: Vec<Scope>,
    pub device: Vec<Scope>,
}

/// Why the controller cannot use its store.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The store itself failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A value does not read.
    #[error(
        "the store's value of {key} does not read ({why}); it was written by another version, or is damaged: move the store away and apply again"
    )]
    Value {
        /// The key.
        key: String,
        /// What was found.
        why: String,
    },
}

/// Changes to the store, made at once.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<(String, Option<Vec<u8>>)>);

impl Batch {
    pub fn put<T: Serialize>(&mut self, key: impl Into<String>, value: &T) -> Result<(), KeepError> {
        let key = key.into();
        let bytes = serde_json::to_vec(value).map_err(|e| value_error(&key, &e))?;
        self.0.push((key, Some(bytes)));
        Ok(())
    }

    pub fn remove(&mut self, key: impl Into<String>) {
        self.0.push((key.into(), None));
    }

    /// Adds the numbers that changed.
    pub fn numbers(&mut self, numbers: &Numbers) -> Result<(), KeepError> {
        self.put("counters", &numbers.counters)?;
        self.put("numbers/enis", &numbers.enis)?;
        self.put("numbers/groups", &numbers.groups)?;
        for name in &numbers.dirty {
            let key = format!("rule/{name}");
            match numbers.rules.get(name) {
                Some(record) => self.put(key, record)?,
                None => self.remove(key),
            }
        }
        Ok(())
    }

    pub fn write(self, store: &mut impl Store) -> Result<(), KeepError> {
        let changes: Vec<store::Change<'_>> =
            self.0.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        Ok(store.put_batch(&changes)?)
    }
}

pub(crate) fn read<T: DeserializeOwned>(store: &impl Store, key: &str) -> Result<Option<T>, KeepError> {
    let Some(bytes) = store.get(key)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes).map_err(|e| value_error(key, &e))?;
    Ok(Some(value))
}

pub(crate) fn read_numbers(store: &impl Store) -> Result<Numbers, KeepError> {
    let mut numbers = Numbers {
        counters: read::<Counters>(store, "counters")?.unwrap_or_default(),
        enis: read(store, "numbers/enis")?.unwrap_or_default(),
        groups: read(store, "numbers/groups")?.unwrap_or_default(),
        ..Numbers::default()
    };
    for (key, bytes) in store.scan("rule/")? {
        let record: RuleRecord = serde_json::from_slice(&bytes).map_err(|e| value_error(&key, &e))?;
        let name = key["rule/".len()..].to_owned();
        numbers.rules.insert(name, record);
    }
    Ok(numbers)
}

fn value_error(key: &str, error: &serde_json::Error) -> KeepError {
    KeepError::Value { key: key.to_owned(), why: error.to_string() }
}
