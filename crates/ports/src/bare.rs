//! A forwarder that does nothing else: the yardstick for what the ports and the kernel allow.
//!
//! Frames go from one interface's receive ring to the other interface by `sendmmsg`, with virtio's
//! header, without being copied or looked at: the fastest way measured between two veths.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::af_packet::open_rings;
use crate::error::PortError;
use crate::port::PortSpec;
use crate::ring::{Messages, Ring};

/// Frames sent in one call.
const BURST: usize = 64;
/// Bytes sent in one call, from which on more do not help: measured with super-frames, a sixth less
/// CPU time per byte than with bursts of 64.
const BURST_BYTES: usize = 1 << 20;
/// How often `stop` is looked at while nothing comes, in milliseconds.
const PATIENCE: i32 = 50;

/// What a bare forwarder has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Frames taken in.
    pub received: u64,
    /// Frames of these that the kernel did not take.
    pub refused: u64,
}

/// A bare forwarder between two interfaces, opened in the namespace of the calling thread.
pub struct Bare {
    rings: [Ring; 2],
}

impl Bare {
    /// Opens both interfaces as an AF_PACKET port does. One queue is used, whatever the specs say.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open(a: &PortSpec, b: &PortSpec) -> Result<Bare, PortError> {
        let one = |spec: &PortSpec| {
            let (_, rings) = open_rings(&PortSpec { queues: 1, ..spec.clone() })?;
            rings.into_iter().next().ok_or(PortError::QueuesInvalid { port: spec.name.clone(), queues: 0 })
        };
        Ok(Bare { rings: [one(a)?, one(b)?] })
    }

    /// Forwards in both directions until `stop` is true.
    pub fn forward(&mut self, stop: &AtomicBool) -> Forwarded {
        let mut messages = Messages::<BURST>::new();
        let mut done = Forwarded::default();
        let [a, b] = &mut self.rings;
        while !stop.load(Ordering::Relaxed) {
            let moved = pump(a, b, &mut messages, &mut done) + pump(b, a, &mut messages, &mut done);
            if moved == 0 {
                wait(a, b);
            }
        }
        done
    }
}

/// Sends on what waits in `from`; returns how many frames that were.
fn pump(from: &mut Ring, to: &Ring, messages: &mut Messages<BURST>, done: &mut Forwarded) -> usize {
    let mut bytes = 0;
    while messages.len() < BURST && bytes < BURST_BYTES {
        let Some(slot) = from.peek(messages.len()) else { break };
        bytes += slot.packet.len();
        messages.push(slot.packet);
    }
    let count = messages.len();
    if count > 0 {
        // SAFETY: the slots stay ours until `advance`.
        unsafe {
            messages.send(to.fd(), |_, _| {
                done.refused += 1;
                false
            });
        }
        from.advance(count);
        done.received += count as u64;
    }
    count
}

/// Sleeps until a frame comes.
fn wait(a: &Ring, b: &Ring) {
    let mut fds =
        [a, b].map(|ring| libc::pollfd { fd: ring.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: `fds` lives through the call and its length is given.
    unsafe { libc::poll(fds.as_mut_ptr(), 2, PATIENCE) };
    if fds.iter().any(|fd| fd.revents & libc::POLLERR != 0) {
        a.clear_error();
        b.clear_error();
    }
}
