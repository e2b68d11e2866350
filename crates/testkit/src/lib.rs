//! What the tests of SoftDPU stand on: a builder of frames, a reference policy, random policies and traffic, and the Rig, which runs
//! a whole device with its controller under one seed. A dev-dependency only; here, what is wrong with a test panics.
#![forbid(unsafe_code)]

pub mod builder;
pub mod random;
pub mod reference;
pub mod rig;

pub use builder::Build;
