//! What a worker and its host path thread send each other. Each punted frame comes back exactly once: as
//! [`ToWorker::Transmit`], [`ToWorker::Again`] or [`ToWorker::Ended`].

use crate::inspect::Inspection;
use packet::{Frame, PuntReason};
use pipeline::connection::State;
use pipeline::key::FlowKey;

/// The worker's record of a punted frame's connection; [`NO_TAG`] where it has none.
pub type Tag = u32;
/// No record.
pub const NO_TAG: Tag = u32::MAX;

/// From a worker to its host path thread.
pub enum ToHost {
    /// A frame that the device does not decide.
    Frame {
        /// The frame as it came.
        frame: Frame,
        /// Why.
        reason: PuntReason,
        /// Its record.
        tag: Tag,
    },
    /// The host path owns this connection from now on.
    Adopt(Box<State>),
    /// The worker owns this connection: whatever the host path has of it is void.
    Forget(FlowKey),
    /// Say what becomes of a packet.
    Inspect(Box<Inspection>),
}

/// From a host path thread to its worker.
pub enum ToWorker {
    /// Send this frame.
    Transmit {
        /// The frame.
        frame: Frame,
        /// Where it leaves.
        port: u16,
        /// Its record.
        tag: Tag,
    },
    /// Not mine: look at it again.
    Again {
        /// The frame.
        frame: Frame,
        /// Its record.
        tag: Tag,
    },
    /// The frame ended there.
    Ended {
        /// Its record.
        tag: Tag,
    },
    /// The host path owns this connection: both directions are to be punted.
    Own(Box<Owned>),
    /// It does not own it any more.
    Gone(FlowKey),
    /// The device may take this connection; its room is reserved.
    Promote(Box<Promotion>),
}

/// Both keys of a connection of the host path.
pub struct Owned {
    /// The opener's direction.
    pub key: FlowKey,
    /// The answers'.
    pub reverse: FlowKey,
    /// Where it was opened.
    pub port: u16,
}

/// A connection on its way into the device.
pub struct Promotion {
    /// Its state.
    pub state: State,
    /// The generation in which its room was reserved.
    pub generation: u64,
}
