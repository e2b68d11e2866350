//! Routes and mappings: where a destination lives.
//!
//! A [`Route`] of the sender's ENI leads a destination prefix to a VNET, or drops it. A [`Mapping`] of that VNET says
//! behind which port a destination lives, and with which MAC address. Both are tables where the longest prefix wins: the
//! stages [`ToVnet`] and [`ToPort`] look them up in turn.

mod rules;
mod stage;
#[cfg(test)]
mod tests;

pub use rules::{Mapping, MappingAction, Mappings, Route, RouteAction, Routes};
pub use stage::{ToPort, ToVnet};
