//! What these tests stand on: a device on a bench, and the policy of two tenants.

mod bench;
mod policy;
mod tenants;

pub use bench::{Bench, Fate, Setup, partial, super_frame};
pub use policy::{Groups, Policy, map};
pub use tenants::*;
