//! Match tables: each a fast structure with a slow reference beside it, its oracle.
//!
//! | table | answers | fast | reference |
//! | --- | --- | --- | --- |
//! | [`exact`] | hash to `u32` handle; keys stay with the caller | buckets of one cache line, incremental growth | [`reference::ExactMap`] |
//! | [`lpm`] | longest prefix to `u32` | path-compressed trie of 6-bit strides | [`reference::LinearLpm`] |
//! | [`classifier`] | ternary words and port ranges, by priority | tuple space search over one exact index | [`reference::LinearClassifier`] |
//!
//! Lookups take `&self`, allocate nothing and take no lock. Updates take `&mut self`: a table
//! belongs to one worker, or is cloned, changed and published as a whole.

pub mod classifier;
pub mod exact;
pub mod lpm;
mod prefetch;
pub mod reference;

pub use prefetch::prefetch;
