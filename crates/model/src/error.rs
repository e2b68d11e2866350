//! What is wrong with a file, and where.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::desired::words;

words! {
    /// The kinds of error, by their stable codes.
    ConfigErrorKind {
        /// The file cannot be read, or is not UTF-8.
        Unreadable = "unreadable",
        /// Neither TOML nor JSON.
        Syntax = "syntax",
        /// A key that its table does not have.
        UnknownKey = "unknown_key",
        /// A key that must be there is not.
        MissingKey = "missing_key",
        /// A string where an integer belongs, and the like.
        WrongType = "wrong_type",
        /// Of the right type, but not a value that the key can have.
        InvalidValue = "invalid_value",
        /// None of the words that the key can have.
        UnknownWord = "unknown_word",
        /// A name that no object has.
        UnknownReference = "unknown_reference",
        /// A name, id, address or number that another object has and that must be unique.
        Duplicate = "duplicate",
        /// Two statements that cannot both hold.
        Contradiction = "contradiction",
    }
}

/// One error of a configuration or profile: where, what, and what to do.
///
/// `two-tenants.toml:12:1: unknown key "adress" in [[eni]]; expected one of name, port, ...; did you mean "addresses"?`
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub struct ConfigError {
    /// What kind of error.
    pub kind: ConfigErrorKind,
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// Column in characters, from 1; 0 when the file as a whole is meant.
    pub column: u32,
    /// The value's place in the tree, like `eni[2].mac_address`; empty for the file as a whole.
    pub path: String,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub expected: Option<String>,
    /// The nearest valid word or value.
    pub nearest: Option<String>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, &self.file, self.line, self.column)?;
        f.write_str(&self.what)?;
        if let Some(expected) = &self.expected {
            write!(f, "; expected {expected}")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "; did you mean {nearest:?}?")?;
        }
        Ok(())
    }
}

/// Something that is allowed and seldom meant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigWarning {
    /// The file, as it was named by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The value's place in the tree, like `eni[2]`.
    pub path: String,
    /// What it is, and what follows from it.
    pub what: String,
}

impl fmt::Display for ConfigWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, &self.file, self.line, self.column)?;
        write!(f, "warning: {}", self.what)
    }
}

fn place(f: &mut fmt::Formatter<'_>, file: &str, line: u32, column: u32) -> fmt::Result {
    if line == 0 { write!(f, "{file}: ") } else { write!(f, "{file}:{line}:{column}: ") }
}

/// What is wrong with one value; the reader adds where.
pub(crate) struct Fault {
    pub kind: ConfigErrorKind,
    pub what: String,
    pub expected: Option<String>,
    pub nearest: Option<String>,
}

impl Fault {
    pub fn new(kind: ConfigErrorKind, what: impl Into<String>) -> Fault {
        Fault { kind, what: what.into(), expected: None, nearest: None }
    }

    pub fn expected(self, expected: impl Into<String>) -> Fault {
        Fault { expected: Some(expected.into()), ..self }
    }

    pub fn nearest(self, nearest: Option<impl Into<String>>) -> Fault {
        Fault { nearest: nearest.map(Into::into), ..self }
    }
}

/// The candidate that `word` is most likely a slip of: up to a third of the longer word's letters inserted, deleted, changed or swapped.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LONGEST: usize = 64;
    if word.len() > LONGEST {
        return None;
    }
    let distance = |candidate: &&str| strsim::osa_distance(word, candidate);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(word.len()) <= c.len().max(word.len()).div_ceil(3))
        .map(|c| (distance(&c), c))
        .filter(|(d, c)| *d <= c.len().max(word.len()).div_ceil(3))
        .min()
        .map(|(_, c)| c)
}
