//! Failures as a person meets them: one line each, and an exit status.

use std::fmt;

/// What ends a command.
#[derive(Debug)]
pub struct Failure {
    /// What to print, without a line end; empty: it was said already.
    pub message: String,
    /// Exit status: 1 not so, 2 bad usage.
    pub status: u8,
}

impl Failure {
    /// It is not so, or it did not work.
    pub fn new(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), status: 1 }
    }

    /// The command was given wrongly.
    pub fn usage(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), status: 2 }
    }
}

/// Of any command.
pub type Result<T = ()> = std::result::Result<T, Failure>;
