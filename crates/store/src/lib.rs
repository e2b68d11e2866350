//! Where the controller keeps what must survive it: keys and values, changed in atomic and durable batches.
//!
//! Two implementations: [`Memory`] for tests and simulations, [`Embedded`] for one machine, a single file.
#![forbid(unsafe_code)]

mod embedded;
mod memory;

pub use embedded::Embedded;
pub use memory::Memory;

use std::path::PathBuf;

/// One change: a value to put, or `None` to remove the key.
pub type Change<'a> = (&'a str, Option<&'a [u8]>);

/// Keys and values that survive the death of the process at any point.
pub trait Store {
    /// The value of a key, if it has one.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Makes all changes or none; when it returns `Ok`, they are on stable storage. Of two changes of one key in a batch the
    /// later one holds.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written; then nothing has changed.
    fn put_batch(&mut self, batch: &[Change<'_>]) -> Result<(), StoreError>;

    /// All pairs whose key starts with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be read.
    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError>;
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{}: another process has the store open; stop it (`softdpu stop`) or name another state directory", path.display())]
    Locked {
        /// The store's file.
        path: PathBuf,
    },
    /// The file may not be opened or created.
    #[error("{}: no permission; make the file and its directory writable for this user, or name another state directory", path.display())]
    Permission {
        /// The store's file.
        path: PathBuf,
    },
    /// The directory does not exist.
    #[error("{}: no such directory; create it, or name another state directory", path.display())]
    NoDirectory {
        /// The store's file.
        path: PathBuf,
    },
    /// No room is left.
    #[error("{}: the disk or the quota is full; free some room, the last change was not made", path.display())]
    DiskFull {
        /// The store's file.
        path: PathBuf,
    },
    /// The file is not a store, or is damaged.
    #[error("{}: not a store, or damaged ({why}); move it away to start with an empty one", path.display())]
    Damaged {
        /// The store's file.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// Anything else that the system said.
    #[error("{}: {why}", path.display())]
    Io {
        /// The store's file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
}
