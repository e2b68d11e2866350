//! Ports in memory: what goes in comes out, and what does not has a name.

use packet::{BATCH, Batch, Checksum, Count, DropReason, GsoType, LARGE, Meta, Pool};
use ports::{MemoryPort, Outcomes, Packet, Port, Preloaded, TxOutcome};

fn super_frame() -> Packet {
    let csum = Checksum::Partial { start: 34, offset: 16 };
    let meta = Meta { gso: GsoType::TcpV4, gso_size: 1448, hdr_len: 66, csum, ..Meta::default() };
    Packet { bytes: vec![7; 10_000], meta }
}

fn free_all(batch: &mut Batch, pool: &mut Pool) {
    (0..batch.len()).filter_map(|i| batch.take(i)).for_each(|frame| pool.free(frame));
    batch.finish();
}

#[test]
fn a_packet_passes_with_its_state() {
    let mut pool = Pool::new(4, 4).unwrap();
    let (mut port, handle) = MemoryPort::pair(8);
    let (mut batch, mut outcomes): (_, Outcomes) = (Batch::new(), [TxOutcome::Sent; _]);
    assert!(handle.push(super_frame()) && handle.push(Packet::from(&b"plain"[..])));
    let received = port.receive(&mut pool, &mut batch, 99);
    assert_eq!((received.frames, received.more, received.dropped.is_empty()), (2, false, true));
    let frame = batch.get(0).unwrap();
    assert_eq!(*frame.meta(), Meta { rx_time: 99, ..super_frame().meta });
    assert_eq!(frame.data(), super_frame().bytes);
    port.transmit(&mut batch, &mut outcomes);
    free_all(&mut batch, &mut pool);
    assert_eq!(outcomes[..2], [TxOutcome::Sent; 2]);
    assert_eq!(handle.pop().unwrap().meta.gso_size, 1448);
    assert_eq!(handle.pop().unwrap().bytes, b"plain");
    assert_eq!(handle.pop(), None);
}

#[test]
fn bounds_have_names() {
    let mut pool = Pool::new(1, 0).unwrap();
    let (mut port, handle) = MemoryPort::pair(3);
    let (mut batch, mut outcomes): (_, Outcomes) = (Batch::new(), [TxOutcome::Sent; _]);
    let large = Packet { bytes: vec![0; LARGE + 1], meta: Meta::default() };
    for packet in [large, Packet::from(&[1; 60][..]), Packet::from(&[2; 70][..])] {
        assert!(handle.push(packet));
    }
    assert!(!handle.push(Packet::default()), "the queue is bounded");
    let received = port.receive(&mut pool, &mut batch, 0);
    assert_eq!(received.frames, 1);
    assert_eq!(
        received.dropped.iter().collect::<Vec<_>>(),
        [
            (DropReason::PortRxNoBuffer, Count { frames: 1, packets: 1, bytes: 70 }),
            (DropReason::FrameTooLarge, Count { frames: 1, packets: 1, bytes: LARGE as u64 + 1 }),
        ]
    );
    handle.set_down(true);
    port.transmit(&mut batch, &mut outcomes);
    assert_eq!(outcomes[0], TxOutcome::Dropped(DropReason::PortDown));
    handle.set_down(false);
    for expected in [TxOutcome::Sent; 3].into_iter().chain([TxOutcome::Dropped(DropReason::PortTxFull)]) {
        port.transmit(&mut batch, &mut outcomes);
        assert_eq!(outcomes[0], expected);
    }
    assert_eq!(handle.waiting(), (0, 3));
    free_all(&mut batch, &mut pool);
}

#[test]
fn a_full_batch_leaves_the_rest_waiting() {
    let mut pool = Pool::new(2 * BATCH, 0).unwrap();
    let (mut port, handle) = MemoryPort::pair(BATCH + 1);
    let mut batch = Batch::new();
    for i in 0..=BATCH {
        assert!(handle.push(Packet::from(&[i as u8][..])));
    }
    let received = port.receive(&mut pool, &mut batch, 0);
    assert_eq!((received.frames, received.more, handle.waiting().0), (BATCH, true, 1));
    free_all(&mut batch, &mut pool);
}

#[test]
fn preloaded_frames_go_round() {
    let mut pool = Pool::new(BATCH, 0).unwrap();
    let mut port = Preloaded::new((0..3).map(|i| Packet::from(&[i][..])).collect());
    let (mut batch, mut outcomes): (_, Outcomes) = (Batch::new(), [TxOutcome::Sent; _]);
    let mut expected = (0..3u8).cycle();
    for _ in 0..2 {
        assert_eq!(port.receive(&mut pool, &mut batch, 1).frames, BATCH);
        for (_, frame) in batch.iter() {
            assert_eq!(frame.data(), [expected.next().unwrap()]);
        }
        port.transmit(&mut batch, &mut outcomes);
        free_all(&mut batch, &mut pool);
    }
    assert_eq!(port.sent, 2 * BATCH as u64);
    assert_eq!(Preloaded::new(Vec::new()).receive(&mut pool, &mut batch, 1).frames, 0);
}
