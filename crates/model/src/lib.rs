//! Desired state and profiles: what a user asks for, and what a device can hold.
//!
//! [`Desired`] is the whole tree with DASH's objects under DASH's names; [`Profile`] is what a device can do. Both are plain
//! data with public fields. Nothing here touches a device.
#![forbid(unsafe_code)]

mod desired;
mod net;
mod profile;
mod span;

pub use desired::{
    AclAction, AclGroup, AclRule, AclStage, Desired, Device, Eni, MissPolicy, Offload, Port,
    PortKind, ResetPolicy, Route, RouteAction, Vnet, VnetMapping,
};
pub use net::{IpPrefix, IpVersion, MacAddr, NetError, PortRange, Protocol};
pub use profile::{Profile, TABLES};
pub use span::Span;
