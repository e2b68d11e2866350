//! Answers to ARP (RFC 826) and to neighbour solicitations (RFC 4861, 7.2).
//!
//! The device knows where each address of a VNET lives, so that no question has to travel. [`asks`] says what a frame asks, and
//! [`answer`] turns the frame into the answer, where it lies. Who may ask, and which MAC address the answer is, is for the caller
//! to say. Probes for duplicate addresses ask whether somebody else has the sender's own address; nobody has, so they get no
//! answer, and neither do announcements.

mod answer;
#[cfg(test)]
mod tests;

pub use answer::{Asked, answer, answer_arp, answer_ns, asks};
