//! Header views and builders, one file per protocol, over plain byte slices: no allocation, no unsafe code.
//!
//! Each protocol's module has a `View`, whose `new_checked` looks at the bytes once so that no accessor can fail afterwards; a
//! `Header` (or a message type) of plain values with `emit`, which writes it and returns the bytes written; and `field`, the
//! named byte ranges, for code that edits in place.
//!
#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod ip;

pub use error::WireError;
