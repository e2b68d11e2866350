//! Virtual laboratories: hosts that are network namespaces, the links between them, programs
//! run inside them, and traffic through real sockets whose every packet is accounted for.
//!
//! [`enter`] turns the calling process into the keeper of a laboratory and runs a closure inside
//! it; there, [`Lab::add_host`] makes hosts, [`Netlink`] wires them, [`traffic`] loads them. From
//! another terminal [`exec`] runs any program in a host. Nothing outlives the keeper: everything
//! that the laboratory made is held by its processes, and these die with it. It works for root
//! and, by a user namespace, for ordinary users.
//!
//! ```text
//!  keeper (outer namespaces)      pid 1 (reaps)  ->  body: the closure given to `enter`
//!   answers @softdpu-lab-UID-NAME                     its network namespace is host "dpu"
//!   turns signals into Stop                           other hosts: namespaces held by its fds
//! ```
#![deny(unsafe_code)]

pub mod daemon;
mod error;
mod exec;
mod host;
mod keeper;
mod lab;
#[allow(unsafe_code)]
mod namespace;
mod netlink;
pub mod scenario;
mod stop;
pub mod topology;
pub mod traffic;

pub use error::LabError;
pub use exec::{exec, query, running};
pub use host::{Host, tap_available};
pub use keeper::{LabOptions, enter};
pub use lab::{DPU, Lab, LabInfo};
pub use netlink::{Link, LinkStats, Netlink, VethEnd};
pub use stop::{Stop, Wake};
