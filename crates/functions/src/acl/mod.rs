//! Access control: up to five stages, each a group of rules in order of priority.
//!
//! A group is [built](Group::build) from [`Rule`]s and answers for a flow key with the first rule that matches. The
//! [`Stage`] asks the groups whose numbers stand in five registers, and makes one answer of theirs, as SONiC DASH does: a
//! terminating answer ends; any other can be overridden by a later stage; the last one counts. A stage without a group is
//! skipped. A stage whose group has no matching rule denies, and ends. No group at all allows.

mod rules;
mod stage;
#[cfg(test)]
mod tests;

pub use rules::{Action, Group, Groups, PortRange, Rule};
pub use stage::{STAGES, Stage};
