//! The functions of the data plane, one folder each, in the order in which a first packet meets them.
//!
//! | function | what it decides |
//! | --- | --- |
//! | [`eni`] | which ENI a port belongs to, whether it is armed, and which sources it may use |
//! | [`acl`] | allow or deny, in up to five stages of rule groups |
//! | [`route`] | to which VNET a destination leads, and behind which port it lives |
//! | [`conntrack`] | whether a packet fits the connection that it claims to belong to |
//! | [`neighbor`] | answers to ARP and neighbour solicitations |
//!
//! No function uses another. Stages of `eni`, `acl` and `route` talk through the registers of a
//! [`Judgement`](pipeline::judge::Judgement); the program that composes them says which register holds what. What they share
//! is how tables are cut into scopes ([`scope`]) and how prefixes are matched ([`prefix`]).
#![forbid(unsafe_code)]

pub mod acl;
pub mod conntrack;
pub mod eni;
pub mod neighbor;
pub mod prefix;
pub mod route;
pub mod scope;
#[cfg(test)]
mod testing;
