//! Frames come home: from this thread, from others, and when somebody forgets them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use packet::{BATCH, Batch, Frame, LARGE, Pool, SMALL};
use proptest::prelude::*;

#[test]
fn large_frames_serve_when_small_ones_are_out() {
    let mut pool = Pool::new(1, 1).unwrap();
    let a = pool.alloc(100).unwrap();
    let b = pool.alloc(100).unwrap();
    assert!(!a.is_large() && b.is_large());
    assert!(pool.alloc(100).is_none());
    pool.free(b);
    let b = pool.alloc(LARGE).unwrap();
    assert!(pool.alloc(LARGE).is_none(), "a small one never serves for a large one");
    assert_eq!((pool.available(), pool.outstanding()), ((0, 0), 2));
    pool.free(a);
    pool.free(b);
    assert_eq!((pool.available(), pool.outstanding()), ((1, 1), 0));
}

#[test]
fn a_pool_of_nothing_gives_nothing() {
    let mut pool = Pool::new(0, 0).unwrap();
    assert!(pool.alloc(0).is_none());
    assert_eq!((pool.available(), pool.outstanding()), ((0, 0), 0));
    assert!(Pool::new(usize::MAX / 64, 0).is_err());
}

#[test]
fn a_forgotten_frame_goes_home_is_counted_and_panics() {
    let mut pool = Pool::new(1, 0).unwrap();
    let frame = pool.alloc(1).unwrap();
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(frame)));
    assert_eq!(dropped.is_err(), cfg!(debug_assertions));
    assert_eq!((pool.stray(), pool.outstanding()), (1, 0));
}

#[test]
fn a_frame_of_another_pool_goes_to_its_own_home() {
    let (mut a, mut b) = (Pool::new(1, 0).unwrap(), Pool::new(1, 0).unwrap());
    let frame = a.alloc(1).unwrap();
    b.free(frame);
    assert_eq!((a.available(), b.available()), ((1, 0), (1, 0)));
}

#[test]
fn frames_outlive_their_pool() {
    let mut pool = Pool::new(4, 0).unwrap();
    let mut frame = pool.alloc(SMALL).unwrap();
    drop(pool);
    frame.data_mut().fill(7);
    assert!(frame.data().iter().all(|&b| b == 7));
    frame.release();
}

#[test]
fn many_threads_send_frames_home_while_the_owner_takes() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 20_000;
    let mut pool = Pool::new(40, 2).unwrap();
    let (mut senders, mut joins) = (Vec::new(), Vec::new());
    for _ in 0..THREADS {
        let (sender, receiver) = mpsc::channel::<(u64, Frame)>();
        senders.push(sender);
        joins.push(thread::spawn(move || {
            let mut seen = 0;
            for (n, mut frame) in receiver {
                // Nobody else writes to a frame while this thread holds it.
                assert_eq!(frame.data(), n.to_le_bytes());
                frame.data_mut().fill(0xee);
                frame.release();
                seen += 1;
            }
            seen
        }));
    }
    let mut sent = 0;
    while sent < ROUNDS {
        match pool.copy_from(&sent.to_le_bytes()) {
            Some(frame) => {
                senders[sent as usize % THREADS].send((sent, frame)).unwrap();
                sent += 1;
            }
            None => thread::yield_now(),
        }
    }
    drop(senders);
    let seen: u64 = joins.into_iter().map(|join| join.join().unwrap()).sum();
    assert_eq!(seen, ROUNDS);
    assert_eq!((pool.available(), pool.outstanding(), pool.stray()), ((40, 2), 0, 0));
}

#[test]
fn a_batch_keeps_slots_and_reports_what_was_left_over() {
    let mut pool = Pool::new(BATCH + 1, 0).unwrap();
    let mut batch = Batch::new();
    for i in 0..BATCH {
        assert_eq!(batch.room(), BATCH - i);
        let frame = pool.copy_from(&[i as u8]).unwrap();
        assert_eq!(batch.push(frame).ok(), Some(i));
    }
    let one_more = batch.push(pool.alloc(1).unwrap()).unwrap_err();
    pool.free(one_more);
    assert!(batch.is_full());
    let taken = batch.take(3).unwrap();
    assert_eq!(taken.data(), [3]);
    pool.free(taken);
    assert!(batch.take(3).is_none() && batch.get(3).is_none() && batch.get(BATCH).is_none());
    assert_eq!(batch.get(4).unwrap().data(), [4], "slots keep their numbers");
    assert_eq!((batch.len(), batch.iter().count()), (BATCH, BATCH - 1));
    for i in (0..BATCH).filter(|i| *i != 3 && *i != 9) {
        pool.free(batch.take(i).unwrap());
    }
    let finished = catch_unwind(AssertUnwindSafe(|| batch.finish()));
    assert_eq!(finished.ok(), if cfg!(debug_assertions) { None } else { Some(1) });
    assert!(batch.is_empty());
    assert_eq!((pool.outstanding(), pool.stray()), (0, 0));
    assert_eq!(batch.finish(), 0);
}

proptest! {
    /// Any order of taking and freeing, here and elsewhere: no frame is given out twice, the
    /// numbers are those of a plain count, and at the end all are home.
    #[test]
    fn the_pool_counts_like_a_list(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..200)) {
        const N: (usize, usize) = (5, 3);
        let mut pool = Pool::new(N.0, N.1).unwrap();
        let mut out: VecDeque<(u8, Frame)> = VecDeque::new();
        for (n, (what, which)) in steps.into_iter().enumerate() {
            let mark = n as u8;
            match what {
                0 | 1 => {
                    let len = if what == 0 { 1 } else { SMALL + 1 };
                    let (small, large) = pool.available();
                    let frame = pool.alloc(len);
                    prop_assert_eq!(frame.is_some(), large > 0 || (what == 0 && small > 0));
                    if let Some(mut frame) = frame {
                        frame.data_mut()[0] = mark;
                        out.push_back((mark, frame));
                    }
                }
                _ if out.is_empty() => {}
                _ => {
                    let (mark, frame) = out.remove(which.index(out.len())).unwrap();
                    prop_assert_eq!(frame.data()[0], mark);
                    if what == 2 { pool.free(frame) } else { frame.release() }
                }
            }
            prop_assert_eq!(pool.outstanding(), out.len());
        }
        out.into_iter().for_each(|(_, frame)| frame.release());
        prop_assert_eq!((pool.available(), pool.stray()), (N, 0));
    }
}
