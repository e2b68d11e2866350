//! Header views and builders, one file per protocol, over plain byte slices: no allocation, no unsafe code.
//!
//! Each protocol's module has a `View`, whose `new_checked` looks at the bytes once so that no accessor can fail afterwards; a
//! `Header` (or a message type) of plain values with `emit`, which writes it and returns the bytes written; and `field`, the
//! named byte ranges, for code that edits in place.
//!
//! ```
//! use wire::{ethernet, ethernet::ethertype, ipv4};
//!
//! let mut frame = [0; 64];
//! let ethernet = ethernet::Header {
//!     dst: "02:00:00:00:00:02".parse()?,
//!     src: "02:00:00:00:00:01".parse()?,
//!     ethertype: ethertype::IPV4,
//! };
//! let l3 = ethernet.emit(&mut frame)?;
//! let ip = ipv4::Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), wire::ip::protocol::UDP, 8);
//! ip.emit(&mut frame[l3..])?;
//!
//! let view = ethernet::View::new_checked(&frame)?;
//! assert_eq!(ipv4::View::new_checked(view.payload())?.header(), ip);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod arp;
mod bytes;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ndp;
pub mod tcp;
pub mod udp;
pub mod virtio_net;

pub use error::WireError;
