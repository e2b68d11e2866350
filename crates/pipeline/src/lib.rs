//! The program model: parsing, the flow key, stages, verdicts, connections.
#![forbid(unsafe_code)]

pub mod key;
