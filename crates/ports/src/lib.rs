//! Where packets come in and go out.
//!
//! A [`Port`] is one queue of one interface, owned by one worker. [`open`] makes the kinds that
//! speak with the kernel: a TAP whose other end is a host's interface, and an AF_PACKET socket on
//! an interface that is there already. Both carry virtio's header, so that a TCP super-frame of
//! 64 KiB stays one frame and checksums stay as they are. [`MemoryPort`] and [`Preloaded`] are for
//! tests and measurements.
//!
//! `unsafe` is confined to the files that call the kernel: `sys.rs`, `tap.rs`, `ring.rs`,
//! `af_packet.rs`, `bare.rs`.

mod af_packet;
mod bare;
mod error;
mod memory;
mod port;
mod ring;
mod sys;
mod tap;
mod vnet;

pub use bare::{Bare, Forwarded};
pub use error::PortError;
pub use memory::{MemoryHandle, MemoryPort, Packet, Preloaded};
pub use port::{Outcomes, Port, PortInfo, PortKind, PortSpec, Received, RxDrops, TxOutcome, open};
