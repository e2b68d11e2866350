//! What every backend offers.

use crate::{Command, CommandId, Completion};
use serde::{Deserialize, Serialize};

/// One table, as far as a controller must know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableCapability {
    /// The table's name in the program's schema.
    pub name: String,
    /// Entries that fit; `None`: as many as memory holds.
    pub limit: Option<u64>,
}

/// What a device can do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Capabilities {
    /// The program that it runs.
    pub program: String,
    /// The profile's name.
    pub profile: String,
    /// Its tables.
    pub tables: Vec<TableCapability>,
    /// Commands that may be under way at once.
    pub queue: u32,
    /// Whether a commit changes all tables at once.
    pub atomic_commit: bool,
}

/// Why a command could not even be queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The command queue is full; poll for completions, then try again.
    #[error("queue_full")]
    QueueFull,
    /// The device is not there (its process or its connection ended).
    #[error("device_gone: {0}")]
    Gone(String),
}

/// A device as its controller sees it. Nothing here blocks.
pub trait Device {
    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Puts a command into the device's queue.
    ///
    /// # Errors
    /// [`SubmitError`] if it was not taken; then no completion will come.
    fn submit(&mut self, command: Command) -> Result<CommandId, SubmitError>;

    /// The next completion that has come, in any order.
    ///
    /// # Errors
    /// [`SubmitError::Gone`] once the device is lost; commands under way have unknown outcome then.
    fn poll(&mut self) -> Result<Option<Completion>, SubmitError>;
}
