//! What waits for the host path: a bounded queue per ENI, served in turn, so that one ENI's misses do not starve the others.

use crate::message::Tag;
use packet::{Frame, PuntReason};
use std::collections::VecDeque;

/// A punted frame.
pub struct Punted {
    /// The frame.
    pub frame: Frame,
    /// Why.
    pub reason: PuntReason,
    /// The worker's record of its connection.
    pub tag: Tag,
}

/// Frames of one ENI served before the next has its turn.
const TURN: usize = 16;

/// The queues, by ENI number.
pub struct HostQueues {
    queues: Vec<VecDeque<Punted>>,
    limit: usize,
    next: usize,
    left: usize,
    waiting: usize,
}

impl HostQueues {
    /// Empty queues, each for `limit` frames.
    pub fn new(limit: usize) -> Self {
        HostQueues { queues: Vec::new(), limit, next: 0, left: TURN, waiting: 0 }
    }

    /// Adds a frame, or gives it back if its ENI's queue is full.
    pub fn push(&mut self, punted: Punted) -> Result<(), Punted> {
        let eni = punted.frame.meta().eni as usize;
        if self.queues.len() <= eni {
            self.queues.resize_with(eni + 1, VecDeque::new);
        }
        if self.queues[eni].len() >= self.limit {
            return Err(punted);
        }
        self.queues[eni].push_back(punted);
        self.waiting += 1;
        Ok(())
    }

    /// The next frame to serve.
    pub fn pop(&mut self) -> Option<Punted> {
        if self.waiting == 0 {
            return None;
        }
        loop {
            if self.left > 0
                && let Some(punted) = self.queues[self.next].pop_front()
            {
                self.left -= 1;
                self.waiting -= 1;
                return Some(punted);
            }
            self.next = (self.next + 1) % self.queues.len();
            self.left = TURN;
        }
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NO_TAG;
    use packet::Pool;

    #[test]
    fn a_loud_eni_does_not_starve_a_quiet_one() {
        let mut pool = Pool::new(64, 0).unwrap();
        let mut queues = HostQueues::new(40);
        let mut punt = |queues: &mut HostQueues, eni: u16| {
            let mut frame = pool.alloc(60).unwrap();
            frame.meta_mut().eni = eni;
            queues.push(Punted { frame, reason: PuntReason::TableMiss, tag: NO_TAG })
        };
        for _ in 0..40 {
            assert!(punt(&mut queues, 1).is_ok());
        }
        let refused = punt(&mut queues, 1);
        assert!(refused.is_err(), "the queue's bound holds");
        refused.unwrap_err().frame.release();
        assert!(punt(&mut queues, 5).is_ok(), "and is its own");
        assert_eq!(queues.len(), 41);
        let order: Vec<u16> = std::iter::from_fn(|| {
            queues.pop().map(|p| {
                let eni = p.frame.meta().eni;
                p.frame.release();
                eni
            })
        })
        .collect();
        assert_eq!(order.iter().position(|&e| e == 5), Some(TURN), "served after one turn of the other");
        assert_eq!(order.len(), 41);
    }
}
