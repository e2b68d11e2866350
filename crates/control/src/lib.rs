//! The controller: desired state in, entries out, and no status without proof.
//!
//! [`Controller`] is a deterministic state machine: desired state is compiled to rules ([`compile`]) and rules to numbered entries,
//! a plan finds the safe set together with the device, a commit makes device and host path switch at once, and nothing is called
//! confirmed before it was read back. Time is an argument, the device is a [`contract::Device`], what must last is in a
//! [`store::Store`].
#![forbid(unsafe_code)]

pub mod api;
mod compile;
mod controller;
mod engine;
mod explain;
mod frame;
mod keep;
mod link;
mod numbers;
mod plan;
mod prove;
mod remote;
mod report;
mod rule;
mod transact;
mod witness;
mod words;

pub use compile::{CompileError, Compiled, CompiledRule, Draft, Numbering, Scope, compile};
pub use controller::{ApplyError, Controller, Options, ResetReport, Submission, Verdict};
pub use explain::{EntryPlace, Explanation, RuleDetail};
pub use keep::{KeepError, Revision};
pub use prove::ProofReport;
pub use remote::RemoteDevice;
pub use report::{ControlStatus, Diff, DiffLine, RuleChange};
pub use rule::{Change, Moment, RuleReport, RuleState};
