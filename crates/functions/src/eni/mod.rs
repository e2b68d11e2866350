//! ENIs: the network interfaces that the device serves, one behind each port.
//!
//! [`Ingress`] finds the ENI of the port where packets come in, and with it their VNET, the groups of the outbound ACL
//! and the way back. [`Source`] checks that the source address is one of the ENI's. [`Egress`] finds the ENI behind the
//! port where they leave, and the groups of its inbound ACL. An ENI that is not armed, because it is not known whether
//! all of its policy is in these tables, lets nothing pass in either direction.

mod rules;
mod stage;
#[cfg(test)]
mod tests;

pub use rules::{Armed, Eni, Enis, Entry, Permit, SourceAction, Sources, StageGroups};
pub use stage::{Egress, Ingress, Source};
