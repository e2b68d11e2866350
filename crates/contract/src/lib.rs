//! What the controller and the device say to each other.
//!
//! The controller speaks in [`Command`]s, the device answers each with exactly one [`Completion`],
//! later and in any order (or, under a fault, never). Entries are neutral: a table's number, match
//! fields in the order of the program's [`schema`], an action with parameters. Neither side sees the
//! other's data structures.
//!
//! [`report`] holds what anybody may read; the device answers it on a socket of its own, so that
//! it can be asked while the controller is dead.
#![forbid(unsafe_code)]

pub mod codec;
mod command;
mod device;
mod entry;
mod reason;
pub mod report;
pub mod schema;

pub use command::{
    Armed, Command, Completion, DeviceState, DumpedEntry, EntryHits, Op, Outcome, Probed, Reply, ResetScope,
};
pub use device::{Capabilities, Device, SubmitError, TableCapability};
pub use entry::{
    Action, ActionId, CommandId, Entry, EntryId, FieldMatch, Generation, Miss, RuleRef, Session, TableId,
    Target, Version, prefix_mask,
};
pub use reason::InstallReason;
