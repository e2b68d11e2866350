//! The way out: a batch per port, sent at the end of each poll, and what each port has seen.

use packet::{BATCH, Batch, Count, DropReason, Frame, Ledger, Pool};
use ports::{Outcomes, Port, Received, TxOutcome};

/// Upper bounds of the histogram of received sizes, in bytes.
pub const SIZES: [u32; 10] = [64, 128, 256, 512, 1024, 1518, 2048, 9018, 32768, 65599];

/// What one thread saw of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Received.
    pub rx: Count,
    /// Sent.
    pub tx: Count,
    /// Dropped: came in here, or could not leave here.
    pub drops: u64,
    /// Frames received by size; see [`SIZES`].
    pub sizes: [u64; SIZES.len()],
}

/// One port's queue and what waits for it.
pub struct Queue {
    port: Box<dyn Port>,
    waiting: Batch,
    /// What was seen here.
    pub count: PortCount,
}

impl Queue {
    /// Nothing waits yet.
    pub fn new(port: Box<dyn Port>) -> Self {
        Queue { port, waiting: Batch::new(), count: PortCount::default() }
    }

    /// Takes frames in.
    pub fn receive(&mut self, pool: &mut Pool, batch: &mut Batch, now: u64, ledger: &mut Ledger) -> Received {
        let received = self.port.receive(pool, batch, now);
        for (reason, count) in received.dropped.iter() {
            ledger.entered.port += count;
            ledger.drop(reason, count);
            self.count.rx += count;
            self.count.drops += count.frames;
        }
        received
    }

    /// Counts a frame that came in.
    #[inline]
    pub fn came_in(&mut self, count: Count, len: usize) {
        self.count.rx += count;
        let bar = SIZES.iter().position(|&s| len <= s as usize).unwrap_or(SIZES.len() - 1);
        self.count.sizes[bar] += 1;
    }

    /// Puts a frame among those to be sent.
    #[inline]
    pub fn send(&mut self, frame: Frame, pool: &mut Pool, ledger: &mut Ledger) {
        if self.waiting.is_full() {
            self.flush(pool, ledger);
        }
        if let Err(frame) = self.waiting.push(frame) {
            // A batch just flushed has room.
            frame.release();
        }
    }

    /// Sends what waits.
    pub fn flush(&mut self, pool: &mut Pool, ledger: &mut Ledger) {
        if self.waiting.is_empty() {
            return;
        }
        let mut outcomes: Outcomes = [TxOutcome::Sent; BATCH];
        self.port.transmit(&mut self.waiting, &mut outcomes);
        for (slot, outcome) in outcomes.iter().enumerate().take(self.waiting.len()) {
            let Some(frame) = self.waiting.take(slot) else { continue };
            let count = frame.wire();
            match *outcome {
                TxOutcome::Sent => {
                    ledger.left.port += count;
                    self.count.tx += count;
                }
                TxOutcome::Dropped(reason) => {
                    ledger.drop(reason, count);
                    self.count.drops += 1;
                }
            }
            pool.free(frame);
        }
        self.waiting.finish();
    }

    /// The descriptor that tells of frames.
    pub fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.port.wait_fd()
    }

    /// Counts a drop of a frame that came in here.
    #[inline]
    pub fn dropped(&mut self, _reason: DropReason) {
        self.count.drops += 1;
    }
}
