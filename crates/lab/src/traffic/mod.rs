//! Traffic: clients and servers on real sockets, each a thread in its host, each bounded in time,
//! each stoppable, each giving an account of what it sent or received and when.
//!
//! Times are nanoseconds of the monotonic clock ([`now`]), the device's clock too, so that the
//! moments of both compare. Goodput over time is a [`Series`], readable while traffic runs.
//!
//! | file | what it makes |
//! | --- | --- |
//! | `ping` | ICMP echo over IPv4 and IPv6: loss, round trips |
//! | `udp` | numbered datagrams at a rate; receivers that tell lost, doubled and late ones, and echo |
//! | `tcp` | transfers and endless streams with their content's digest checked at both ends |
//! | `frames` | raw frames, spoofed ones among them; sniffers that count frames |

mod digest;
mod frames;
mod ping;
mod series;
mod tcp;
mod track;
mod udp;

pub use digest::{Content, Digest};
pub use frames::{RawSender, SniffCounts, SniffedFrame, Sniffer, UdpFrame};
pub use ping::{Ping, PingReport};
pub use series::{Sample, Series};
pub use tcp::{Amount, TcpFailure, TcpReceived, TcpSend, TcpSender, TcpSent, TcpServer, TcpStage};
pub use track::StreamReport;
pub use udp::{UdpReceiver, UdpSend, UdpSent};

use crate::error::LabError;
use crate::host::Host;
use crate::stop::Stop;
use std::panic::resume_unwind;
use std::thread::JoinHandle;

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Traffic under way, ending in a report `T`. Dropping it stops it and waits.
#[derive(Debug)]
pub struct Traffic<T> {
    stop: Stop,
    thread: Option<JoinHandle<Result<Result<T, LabError>, LabError>>>,
}

impl<T: Send + 'static> Traffic<T> {
    /// Runs `f` on a thread in `host`. `f` must return soon after its [`Stop`] is raised.
    pub(crate) fn start(
        host: &Host,
        f: impl FnOnce(&Stop) -> Result<T, LabError> + Send + 'static,
    ) -> Result<Self, LabError> {
        let stop = Stop::new().map_err(LabError::setup("create an eventfd"))?;
        let its = stop.clone();
        let thread = Some(host.spawn(move || f(&its))?);
        Ok(Self { stop, thread })
    }

    /// Whether it has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its own end.
    ///
    /// # Errors
    /// It could not be set up. What the network did to it is in the report.
    pub fn join(mut self) -> Result<T, LabError> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result?,
            Some(Err(panic)) => resume_unwind(panic),
            None => Err(LabError::setup("join the traffic")("it was joined before")),
        }
    }

    /// Ends it now.
    ///
    /// # Errors
    /// As [`Traffic::join`].
    pub fn stop(self) -> Result<T, LabError> {
        self.stop.request();
        self.join()
    }
}

impl<T> Drop for Traffic<T> {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.request();
            // Its report is not wanted; a panic was printed by its own thread.
            let _ = thread.join();
        }
    }
}

/// Asks for 8 MiB of receive buffer; where the system's limit is lower, for that.
fn enlarge_receive_buffer(socket: impl std::os::fd::AsFd) {
    const WANTED: usize = 8 << 20;
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
    if set_socket_recv_buffer_size_force(&socket, WANTED).is_err() {
        // The kernel caps this one by itself; a smaller buffer shows as counted drops.
        let _ = set_socket_recv_buffer_size(&socket, WANTED);
    }
}
