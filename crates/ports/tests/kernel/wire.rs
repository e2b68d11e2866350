//! A forwarder made of two ports, as a worker would do it, that remembers what it saw.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use packet::{Batch, Checksum, Count, GsoType, Ledger, Pool};
use ports::{Outcomes, Port, TxOutcome};

/// What passed.
#[derive(Default)]
pub struct Seen {
    pub ledger: Ledger,
    pub tcp_gso: u64,
    pub udp_gso: Vec<(u16, usize)>,
    pub partial: u64,
    /// Wire-equivalents of all frames, from what the port said alone.
    pub wire: Count,
}

pub fn poll(fds: &[Option<BorrowedFd<'_>>], timeout_ms: i32) -> bool {
    let mut fds: Vec<_> = fds
        .iter()
        .flatten()
        .map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 })
        .collect();
    // SAFETY: `fds` lives through the call and its length is given.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as u64, timeout_ms) > 0 }
}

/// Moves frames one way, once.
pub fn step(
    from: &mut dyn Port,
    to: &mut dyn Port,
    pool: &mut Pool,
    batch: &mut Batch,
    seen: &mut Seen,
) -> usize {
    let received = from.receive(pool, batch, 1);
    for (reason, count) in received.dropped.iter() {
        seen.ledger.entered.port += count;
        seen.ledger.drop(reason, count);
    }
    for (_, frame) in batch.iter() {
        let meta = frame.meta();
        match meta.gso {
            GsoType::None => {}
            GsoType::UdpL4 => seen.udp_gso.push((meta.gso_size, frame.len())),
            GsoType::TcpV4 | GsoType::TcpV6 => seen.tcp_gso += 1,
        }
        seen.partial += u64::from(matches!(meta.csum, Checksum::Partial { .. }));
        seen.wire += frame.wire();
    }
    let mut outcomes: Outcomes = [TxOutcome::Sent; _];
    to.transmit(batch, &mut outcomes);
    for (i, outcome) in outcomes.iter().enumerate().take(batch.len()) {
        let Some(frame) = batch.take(i) else { continue };
        let count = frame.wire();
        seen.ledger.entered.port += count;
        match *outcome {
            TxOutcome::Sent => seen.ledger.left.port += count,
            TxOutcome::Dropped(reason) => seen.ledger.drop(reason, count),
        }
        pool.free(frame);
    }
    batch.finish();
    received.frames
}

/// Forwards between two ports while `during` runs.
pub fn forward<T>(mut a: Box<dyn Port>, mut b: Box<dyn Port>, during: impl FnOnce() -> T) -> (Seen, T) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut pool = Pool::new(256, 80).expect("a pool");
            let (mut batch, mut seen) = (Batch::new(), Seen::default());
            loop {
                let moved = step(&mut *a, &mut *b, &mut pool, &mut batch, &mut seen)
                    + step(&mut *b, &mut *a, &mut pool, &mut batch, &mut seen);
                if moved == 0 {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    poll(&[a.wait_fd(), b.wait_fd()], 20);
                }
            }
            drop((a, b));
            assert_eq!((pool.outstanding(), pool.stray()), (0, 0), "all frames are home");
            assert_eq!(seen.ledger.unaccounted(), 0);
            seen
        });
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let result = {
            let _stop = Stop(&stop);
            during()
        };
        (worker.join().expect("the forwarder"), result)
    })
}
