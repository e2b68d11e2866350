//! What a port is, and how one is opened.

use std::os::fd::BorrowedFd;

use packet::{BATCH, Batch, Count, DropReason, Pool};

use crate::error::PortError;
use crate::{af_packet, tap};

/// One queue of one interface, owned by one worker.
pub trait Port: Send {
    /// Takes frames in until the batch is full, nothing is waiting, or it has been enough at once
    /// (then [`Received::more`] is set). Frames come from `pool`,
    /// `now` (ns, monotonic) becomes their `rx_time`. [`Meta`](packet::Meta) holds the GSO and
    /// checksum state; offsets, port and ENI are the caller's to fill in.
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now: u64) -> Received;

    /// Sends all frames of the batch, in the order of their slots. They stay in the batch:
    /// `outcomes[i]` says what became of slot `i`, and the caller counts and frees the frame.
    /// Outcomes of empty slots are left alone. A frame needs 12 bytes of headroom: one with less is a
    /// `port_tx_error`.
    fn transmit(&mut self, batch: &mut Batch, outcomes: &mut Outcomes);

    /// Becomes readable when frames wait: to sleep on. `None` where nobody can wake us.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Bytes after which the ports of the kernel end a call of [`Port::receive`]: so many are still in
/// the cache when they are sent on. Measured with super-frames: a tenth less CPU time per byte than
/// with batches of 64.
pub(crate) const BUDGET: usize = 128 << 10;

/// What became of each slot of a batch that was sent.
pub type Outcomes = [TxOutcome; BATCH];

/// What became of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxOutcome {
    /// The kernel took it.
    #[default]
    Sent,
    /// It did not.
    Dropped(DropReason),
}

/// What one call of [`Port::receive`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Frames put into the batch.
    pub frames: usize,
    /// Whether more may be waiting.
    pub more: bool,
    /// Frames that came and did not get into the batch: each counts as entered and as dropped.
    pub dropped: RxDrops,
}

/// Drops at reception, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxDrops {
    /// [`DropReason::PortRxNoBuffer`].
    pub no_buffer: Count,
    /// [`DropReason::FrameTooLarge`].
    pub too_large: Count,
    /// [`DropReason::PortRxKernel`]: the kernel tells their number only, so `bytes` is 0.
    pub kernel: Count,
    /// [`DropReason::PortRxError`].
    pub error: Count,
}

impl RxDrops {
    /// The drops that happened.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, Count)> {
        [
            (DropReason::PortRxNoBuffer, self.no_buffer),
            (DropReason::FrameTooLarge, self.too_large),
            (DropReason::PortRxKernel, self.kernel),
            (DropReason::PortRxError, self.error),
        ]
        .into_iter()
        .filter(|(_, count)| !count.is_zero())
    }

    /// Whether nothing was dropped.
    pub fn is_empty(&self) -> bool {
        *self == RxDrops::default()
    }
}

/// What a port is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// A TAP: the interface is the host's end, we hold the other one. It is made by opening it, and
    /// may be moved into the host's namespace afterwards.
    Tap,
    /// An AF_PACKET socket on an interface that is there already.
    AfPacket,
    /// Queues in memory, for tests and measurements. Made by [`MemoryPort::pair`](crate::MemoryPort::pair).
    Memory,
}

impl PortKind {
    /// The stable code, as in configuration and JSON.
    pub const fn code(self) -> &'static str {
        match self {
            PortKind::Tap => "tap",
            PortKind::AfPacket => "af_packet",
            PortKind::Memory => "memory",
        }
    }

    /// The one with this code.
    pub fn from_code(code: &str) -> Option<PortKind> {
        [PortKind::Tap, PortKind::AfPacket, PortKind::Memory].into_iter().find(|kind| kind.code() == code)
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// The port's name in the device.
    pub name: String,
    /// What it is made of.
    pub kind: PortKind,
    /// The interface's name in the kernel.
    pub interface: String,
    /// Queues, each for one worker; at least 1.
    pub queues: u16,
    /// Largest IP packet, in bytes. A TAP gets it; another interface must have it.
    pub mtu: u32,
}

/// What was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The port's name in the device.
    pub name: String,
    /// What it is made of.
    pub kind: PortKind,
    /// The interface's name in the kernel.
    pub interface: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The interface's MAC address; of a TAP, that is the host's.
    pub mac: [u8; 6],
    /// Queues.
    pub queues: u16,
    /// The kernel's index of the interface, in the namespace where it was opened.
    pub index: u32,
}

/// Opens all queues of a port, in the network namespace of the calling thread.
///
/// # Errors
/// One line that says what is missing. Nothing stays half open.
pub fn open(spec: &PortSpec) -> Result<(PortInfo, Vec<Box<dyn Port>>), PortError> {
    if spec.queues == 0 || spec.queues > 256 {
        return Err(PortError::QueuesInvalid { port: spec.name.clone(), queues: spec.queues });
    }
    if !(68..=65_535).contains(&spec.mtu) {
        return Err(PortError::MtuInvalid { port: spec.name.clone(), mtu: spec.mtu });
    }
    match spec.kind {
        PortKind::Memory => Err(PortError::MemoryHasNoInterface { port: spec.name.clone() }),
        PortKind::Tap => tap::open(spec),
        PortKind::AfPacket => af_packet::open(spec),
    }
}
