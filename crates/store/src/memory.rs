//! A store in memory: it survives nothing but a controller that is dropped and made again.

use crate::{Change, Store, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A store in memory. Clones share their content, so that a second controller finds what the first one kept.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    pairs: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Memory {
    fn pairs(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.pairs().get(key).cloned())
    }

    fn put_batch(&mut self, batch: &[Change<'_>]) -> Result<(), StoreError> {
        let mut pairs = self.pairs();
        for (key, value) in batch {
            match value {
                Some(value) => pairs.insert((*key).to_owned(), value.to_vec()),
                None => pairs.remove(*key),
            };
        }
        Ok(())
    }

    fn scan(&self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        Ok(self
            .pairs()
            .range(prefix.to_owned()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }
}
