//! A request to stop that any number of threads and processes can wait on beside their sockets.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A stop request: raised once, never lowered. Clones share it, across `fork` too.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The descriptor is ready, or has an error to report.
    Ready,
    /// Stop was requested.
    Stopped,
    /// The deadline passed.
    TimedOut,
}

impl Stop {
    /// A request not yet raised. Fails only when descriptors run out.
    pub fn new() -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(eventfd(0, flags)?)))
    }

    /// Raises it.
    pub fn request(&self) {
        // Fails only when the counter is full, which is to say raised.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    /// Whether it was raised.
    pub fn requested(&self) -> bool {
        self.wait_until(Some(Instant::now()))
    }

    /// Waits at most `limit` for the request; true if it was raised.
    pub fn wait(&self, limit: Duration) -> bool {
        self.wait_until(Some(Instant::now() + limit))
    }

    /// Waits until `deadline`, or for ever without one; true if it was raised.
    pub fn wait_until(&self, deadline: Option<Instant>) -> bool {
        self.poll(None, deadline) == Wake::Stopped
    }

    /// Waits until `fd` can be read. A request to stop goes before readiness.
    pub fn readable(&self, fd: impl AsFd, deadline: Option<Instant>) -> Wake {
        self.poll(Some((fd.as_fd(), PollFlags::IN)), deadline)
    }

    /// Waits until `fd` can be written. A request to stop goes before readiness.
    pub fn writable(&self, fd: impl AsFd, deadline: Option<Instant>) -> Wake {
        self.poll(Some((fd.as_fd(), PollFlags::OUT)), deadline)
    }

    fn poll(&self, other: Option<(BorrowedFd<'_>, PollFlags)>, deadline: Option<Instant>) -> Wake {
        let (fd, flags) = other.unwrap_or((self.0.as_fd(), PollFlags::IN));
        let mut fds = [PollFd::new(&*self.0, PollFlags::IN), PollFd::from_borrowed_fd(fd, flags)];
        loop {
            let left = deadline.map(|d| timespec(d.saturating_duration_since(Instant::now())));
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Wake::TimedOut,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) if !fds[0].revents().is_empty() => return Wake::Stopped,
                // An error of poll itself will show again at the read or write.
                Ok(_) | Err(_) => return Wake::Ready,
            }
        }
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: d.as_secs().min(1 << 31) as i64, tv_nsec: i64::from(d.subsec_nanos()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_request_wakes_waiters_and_stays() {
        let stop = Stop::new().expect("eventfd");
        assert!(!stop.requested());
        assert!(!stop.wait(Duration::from_millis(1)));
        let waiter = stop.clone();
        let thread = std::thread::spawn(move || waiter.wait(Duration::from_secs(10)));
        stop.request();
        assert!(thread.join().expect("join"));
        assert!(stop.requested());
    }

    #[test]
    fn readiness_timeout_and_stop_are_told_apart() {
        let stop = Stop::new().expect("eventfd");
        let (a, b) = UnixStream::pair().expect("pair");
        let soon = || Some(Instant::now() + Duration::from_millis(2));
        assert_eq!(stop.readable(&a, soon()), Wake::TimedOut);
        rustix::io::write(&b, b"x").expect("write");
        assert_eq!(stop.readable(&a, None), Wake::Ready);
        stop.request();
        assert_eq!(stop.readable(&a, None), Wake::Stopped);
    }
}
