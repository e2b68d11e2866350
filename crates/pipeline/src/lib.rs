//! The program model: parsing, the flow key, stages and their judgement, verdicts, connections.
#![forbid(unsafe_code)]

pub mod connection;
pub mod judge;
pub mod key;
pub mod parse;
pub mod trace;
pub mod verdict;
