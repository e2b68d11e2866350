//! Ports that are queues in memory: for tests, where each step is in the test's hands, and for
//! measurements, where the kernel shall not be part of what is measured.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packet::{Batch, Count, DropReason, Frame, LARGE, Meta, Pool};

use crate::port::{Outcomes, Port, Received, TxOutcome};

/// A frame outside any pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// GSO and checksum state at reception; all of the frame's metadata at transmission.
    pub meta: Meta,
}

impl From<&[u8]> for Packet {
    fn from(bytes: &[u8]) -> Packet {
        Packet { bytes: bytes.to_vec(), meta: Meta::default() }
    }
}

/// Takes the first bytes and the metadata that a kernel port would deliver.
fn fill(pool: &mut Pool, packet: &Packet, now: u64) -> Option<Frame> {
    let mut frame = pool.copy_from(&packet.bytes)?;
    *frame.meta_mut() = Meta { rx_time: now, ..packet.meta };
    Some(frame)
}

#[derive(Default)]
struct Queues {
    limit: usize,
    down: bool,
    to_port: VecDeque<Packet>,
    from_port: VecDeque<Packet>,
}

/// The device's side of a pair of bounded queues.
pub struct MemoryPort(Arc<Mutex<Queues>>);

/// The test's side of a [`MemoryPort`]. Clones are the same queues.
#[derive(Clone)]
pub struct MemoryHandle(Arc<Mutex<Queues>>);

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryPort {
    /// A port whose queues hold `limit` packets each, and the handle to its other side.
    pub fn pair(limit: usize) -> (MemoryPort, MemoryHandle) {
        let queues = Arc::new(Mutex::new(Queues { limit, ..Queues::default() }));
        (MemoryPort(queues.clone()), MemoryHandle(queues))
    }
}

impl MemoryHandle {
    /// Puts a packet where the port will receive it; false if the queue is full.
    #[must_use]
    pub fn push(&self, packet: Packet) -> bool {
        let mut queues = lock(&self.0);
        if queues.to_port.len() >= queues.limit {
            return false;
        }
        queues.to_port.push_back(packet);
        true
    }

    /// The next packet that the port has sent.
    pub fn pop(&self) -> Option<Packet> {
        lock(&self.0).from_port.pop_front()
    }

    /// Packets that the port has not received yet, and packets sent that were not popped yet.
    pub fn waiting(&self) -> (usize, usize) {
        let queues = lock(&self.0);
        (queues.to_port.len(), queues.from_port.len())
    }

    /// Takes the link down or up: while down, what is sent is dropped as `port_down`.
    pub fn set_down(&self, down: bool) {
        lock(&self.0).down = down;
    }
}

impl Port for MemoryPort {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now: u64) -> Received {
        let mut queues = lock(&self.0);
        let mut received = Received::default();
        while !batch.is_full() {
            let Some(packet) = queues.to_port.pop_front() else { break };
            let count = Count { frames: 1, packets: 1, bytes: packet.bytes.len() as u64 };
            if packet.bytes.len() > LARGE {
                received.dropped.too_large += count;
                continue;
            }
            match fill(pool, &packet, now) {
                Some(frame) => match batch.push(frame) {
                    Ok(_) => received.frames += 1,
                    Err(frame) => pool.free(frame),
                },
                None => received.dropped.no_buffer += count,
            }
        }
        received.more = !queues.to_port.is_empty();
        received
    }

    fn transmit(&mut self, batch: &mut Batch, outcomes: &mut Outcomes) {
        let mut queues = lock(&self.0);
        for (i, frame) in batch.iter() {
            outcomes[i] = if queues.down {
                TxOutcome::Dropped(DropReason::PortDown)
            } else if queues.from_port.len() >= queues.limit {
                TxOutcome::Dropped(DropReason::PortTxFull)
            } else {
                let packet = Packet { bytes: frame.data().to_vec(), meta: *frame.meta() };
                queues.from_port.push_back(packet);
                TxOutcome::Sent
            };
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A port for measurements: it receives copies of the same frames, round and round, and what it
/// sends is gone.
pub struct Preloaded {
    packets: Vec<Packet>,
    next: usize,
    /// Frames sent so far.
    pub sent: u64,
}

impl Preloaded {
    /// A port that receives these packets, in this order, for ever. Without packets it receives
    /// nothing.
    pub fn new(packets: Vec<Packet>) -> Preloaded {
        Preloaded { packets, next: 0, sent: 0 }
    }
}

impl Port for Preloaded {
    fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now: u64) -> Received {
        let mut received = Received { more: !self.packets.is_empty(), ..Received::default() };
        while received.more && !batch.is_full() {
            let packet = &self.packets[self.next];
            let Some(frame) = fill(pool, packet, now) else { break };
            match batch.push(frame) {
                Ok(_) => received.frames += 1,
                Err(frame) => pool.free(frame),
            }
            self.next = if self.next + 1 == self.packets.len() { 0 } else { self.next + 1 };
        }
        received
    }

    fn transmit(&mut self, batch: &mut Batch, outcomes: &mut Outcomes) {
        for (i, _) in batch.iter() {
            outcomes[i] = TxOutcome::Sent;
            self.sent += 1;
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
