//! The DPU itself: workers, the host path, the command queue, profiles and resets.
//!
//! Everything here is stepped: [`SoftDevice::poll`], [`Worker::poll`] and [`HostPath::poll`] take the time and do
//! what is to be done now, so that a simulation runs the same code as the threads of [`run`].
#![forbid(unsafe_code)]

mod command_queue;
mod egress;
mod flow_capacity;
mod host_path;
mod host_queues;
mod inspect;
mod message;
mod parsed;
mod program;
mod query;
mod report;
pub mod run;
mod shared;
mod sockets;
mod table_set;
mod wake;
mod worker;

pub use command_queue::{Asker, SoftDevice};
pub use host_path::HostPath;
pub use program::View;
pub use query::Pending;
pub use report::{Ask, ThreadReport};
pub use shared::{Config, PortDescription, Snapshot, build};
pub use table_set::TableSet;
pub use worker::{Stage, StageTimes, Worker};
