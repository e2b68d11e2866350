//! What is read, as text for people.

mod device;
mod rules;

pub use device::{drops, flows, port, ports, status};
pub use rules::{Names, diff, explanation, plan, proof, reset, rule, rules, trace};
