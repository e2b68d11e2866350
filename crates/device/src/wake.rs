//! Waking a thread that sleeps.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst, fence};

/// A thread goes to sleep by [`prepare`](Self::prepare), one more look for work, and a wait for the descriptor. Who gives
/// it work calls [`wake`](Self::wake), which costs a system call only if it sleeps.
pub struct Wake {
    sleeping: AtomicBool,
    fd: OwnedFd,
}

impl Wake {
    /// A wake-up that nobody waits for yet.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Wake { sleeping: AtomicBool::new(false), fd })
    }

    /// Wakes the thread if it sleeps.
    #[inline]
    pub fn wake(&self) {
        fence(SeqCst);
        if self.sleeping.load(SeqCst) && self.sleeping.swap(false, SeqCst) {
            // The counter can only overflow if nobody reads it, and then it is readable anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Announces sleep; look for work once more after it.
    pub fn prepare(&self) {
        self.sleeping.store(true, SeqCst);
        fence(SeqCst);
    }

    /// Awake again, however that came.
    pub fn awake(&self) {
        self.sleeping.store(false, SeqCst);
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }

    /// Readable when the thread is to wake.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
