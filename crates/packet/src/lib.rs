//! What moves through the device, and how it is counted.
//!
//! A [`Frame`] is one contiguous buffer with room in front of it for headers and 64 bytes of
//! [`Meta`] beside it. A [`Pool`] lends frames to the thread that owns it; any thread may send them
//! home. A [`Batch`] carries up to 64 of them from stage to stage. Whatever happens to a frame has
//! a name ([`DropReason`], [`PuntReason`], [`ConsumeReason`], [`CreateReason`]) and a place in a
//! [`Ledger`], which must balance.
//!
//! `unsafe` is confined to `pool.rs` and `frame.rs`.

mod batch;
mod frame;
mod ledger;
mod meta;
mod pool;
mod reason;

pub use batch::{BATCH, Batch};
pub use frame::{Frame, HEADROOM, LARGE, SMALL};
pub use ledger::{Count, Entered, Ledger, Left};
pub use meta::{Checksum, GsoType, Meta};
pub use pool::Pool;
pub use reason::{ConsumeReason, CreateReason, DropReason, PuntReason};
