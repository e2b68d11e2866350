//! A store in one file, kept by redb: copy on write, two alternating roots, an fsync per batch.

use crate::{Change, Store, StoreError};
use redb::{Database, DatabaseError, ReadableDatabase, StorageError, TableDefinition};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const PAIRS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pairs");

/// A store in one file, open in one process at a time.
#[derive(Debug)]
pub struct Embedded {
    /// `None` while it cannot be opened again.
    database: Option<Database>,
    path: PathBuf,
    /// A write failed: redb refuses all further ones until the file is opened anew.
    failed: bool,
}

impl Embedded {
    /// Opens the store in this file, or creates it there.
    ///
    /// # Errors
    /// [`StoreError`] saying what stands in the way.
    pub fn open(path: impl AsRef<Path>) -> Result<Embedded, StoreError> {
        let path = path.as_ref().to_owned();
        let database = create(&path)?;
        let mut store = Embedded { database: Some(database), path, failed: false };
        store.put_batch(&[])?;
        Ok(store)
    }

    fn database(&self) -> Result<&Database, StoreError> {
        self.database.as_ref().ok_or_else(|| StoreError::Io {
            path: self.path.clone(),
            why: "a write failed, and the file could not be opened again".into(),
        })
    }

    fn write(&mut self, batch: &[Change<'_>]) -> Result<(), StoreError> {
        let write = self.database()?.begin_write().map_err(|e| self.error(e))?;
        {
            let mut pairs = write.open_table(PAIRS).map_err(|e| self.error(e))?;
            for (key, value) in batch {
                match value {
                    Some(value) => pairs.insert(*key, *value),
                    None => pairs.remove(*key),
                }
                .map_err(|e| self.error(e))?;
            }
        }
        write.commit().map_err(|e| self.error(e))
    }

    fn error(&self, error: impl Into<redb::Error>) -> StoreError {
        redb_error(&self.path, error.into())
    }
}

impl Store for Embedded {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let read = self.database()?.begin_read().map_err(|e| self.error(e))?;
        let pairs = read.open_table(PAIRS).map_err(|e| self.error(e))?;
        let value = pairs.get(key).map_err(|e| self.error(e))?;
        Ok(value.map(|v| v.value().to_vec()))
    }

    fn put_batch(&mut self, batch: &[Change<'_>]) -> Result<(), StoreError> {
        if self.failed {
            // The file is locked as long as it is open.
            self.database = None;
            self.database = Some(create(&self.path)?);
        }
        let written = self.write(batch);
        self.failed = written.is_err();
        written
    }

    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let read = self.database()?.begin_read().map_err(|e| self.error(e))?;
        let pairs = read.open_table(PAIRS).map_err(|e| self.error(e))?;
        let mut found = Vec::new();
        for pair in pairs.range(prefix..).map_err(|e| self.error(e))? {
            let (key, value) = pair.map_err(|e| self.error(e))?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_owned(), value.value().to_vec()));
        }
        Ok(found)
    }
}

fn create(path: &Path) -> Result<Database, StoreError> {
    let path = path.to_owned();
    Database::create(&path).map_err(|e| match e {
        DatabaseError::DatabaseAlreadyOpen => StoreError::Locked { path },
        DatabaseError::Storage(e) => storage_error(&path, e),
        other => StoreError::Damaged { path, why: other.to_string() },
    })
}

fn redb_error(path: &Path, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(e) => io_error(path, &e),
        redb::Error::Corrupted(why) => StoreError::Damaged { path: path.to_owned(), why },
        other => StoreError::Io { path: path.to_owned(), why: other.to_string() },
    }
}

fn storage_error(path: &Path, error: StorageError) -> StoreError {
    match error {
        StorageError::Io(e) => io_error(path, &e),
        other => StoreError::Damaged { path: path.to_owned(), why: other.to_string() },
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StoreError::Permission { path },
        ErrorKind::NotFound => StoreError::NoDirectory { path },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::DiskFull { path },
        ErrorKind::InvalidData => StoreError::Damaged { path, why: error.to_string() },
        _ => StoreError::Io { path, why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_becomes_what_to_do() {
        let rows = [
            (28, "/s: the disk or the quota is full; free some room"), // ENOSPC
            (122, "/s: the disk or the quota is full; free some room"), // EDQUOT
            (13, "/s: no permission; make the file"),                  // EACCES
            (30, "/s: no permission; make the file"),                  // EROFS
            (2, "/s: no such directory; create it"),                   // ENOENT
            (5, "/s: Input/output error"),                             // EIO
        ];
        for (code, words) in rows {
            let system = std::io::Error::from_raw_os_error(code);
            let error = redb_error(Path::new("/s"), redb::Error::Io(system)).to_string();
            assert!(error.starts_with(words), "{code}: {error}");
        }
    }
}
