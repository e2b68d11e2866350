//! Desired state and profiles: what a user asks for, and what a device can hold.
//!
//! [`Desired`] is the whole tree with DASH's objects under DASH's names; [`Profile`] is what a device can do. Both are plain
//! data with public fields. [`Config`] reads both from files, with every error at its place. Nothing here touches a device.
#![forbid(unsafe_code)]

mod check;
mod config;
mod decode;
mod desired;
mod error;
mod net;
mod profile;
mod reader;
mod report;
pub mod schema;
mod span;
mod tree;

pub use config::Config;
pub use desired::{
    AclAction, AclGroup, AclRule, AclStage, Desired, Device, Eni, MissPolicy, Offload, Port, PortKind,
    ResetPolicy, Route, RouteAction, Vnet, VnetMapping,
};
pub use error::{ConfigError, ConfigErrorKind, ConfigWarning};
pub use net::{IpPrefix, IpVersion, MacAddr, NetError, PortRange, Protocol};
pub use profile::{Profile, TABLES};
pub use span::Span;
