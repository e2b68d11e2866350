//! A frame's room, and what it amounts to on the wire.

use packet::{Count, Frame, GsoType, HEADROOM, LARGE, Meta, Pool, SMALL};
use proptest::prelude::*;

fn pool() -> Pool {
    Pool::new(8, 4).expect("a mapping")
}

#[test]
fn a_handle_is_one_pointer_and_data_is_aligned() {
    assert_eq!(size_of::<Option<Frame>>(), size_of::<usize>());
    let mut pool = pool();
    for len in [0, SMALL, SMALL + 1, LARGE] {
        let frame = pool.alloc(len).unwrap();
        assert_eq!(frame.len(), len);
        assert_eq!(frame.headroom(), HEADROOM);
        assert_eq!(frame.data().as_ptr() as usize % 64, 0);
        assert_eq!(frame.is_large(), len > SMALL);
        assert_eq!(frame.capacity(), if len > SMALL { LARGE } else { SMALL });
        pool.free(frame);
    }
    assert!(pool.alloc(LARGE + 1).is_none());
}

#[test]
fn the_start_moves_into_the_headroom_and_back() {
    let mut pool = pool();
    let mut frame = pool.copy_from(b"payload").unwrap();
    frame.meta_mut().port = 7;
    frame.prepend(4).copy_from_slice(b"head");
    assert_eq!(frame.data(), b"headpayload");
    assert_eq!((frame.headroom(), frame.capacity()), (HEADROOM - 4, SMALL + 4));
    frame.trim_front(6);
    assert_eq!(frame.data(), b"yload");
    frame.set_len(2);
    assert_eq!(frame.data(), b"yl");
    assert_eq!(frame.meta().port, 7, "metadata stays");
    frame.prepend(frame.headroom()).fill(0xff);
    assert_eq!((frame.headroom(), frame.meta().port), (0, 7));
    frame.reset(SMALL);
    assert_eq!((frame.headroom(), frame.len(), *frame.meta()), (HEADROOM, SMALL, Meta::default()));
    pool.free(frame);
}

#[test]
fn more_than_the_headroom_is_refused() {
    let mut pool = pool();
    let mut frame = pool.alloc(10).unwrap();
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        frame.prepend(HEADROOM + 1);
    }));
    assert!(tried.is_err());
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| frame.set_len(SMALL + 1)));
    assert!(tried.is_err());
    let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| frame.trim_front(11)));
    assert!(tried.is_err());
    assert_eq!((frame.len(), frame.headroom()), (10, HEADROOM));
    pool.free(frame);
}

#[test]
fn wire_equivalents() {
    // name, length, headers, gso_size, expected packets, expected bytes
    let rows: &[(&str, usize, u16, u16, u64, u64)] = &[
        ("a SYN", 74, 74, 0, 1, 74),
        ("one full segment", 1514, 66, 1448, 1, 1514),
        ("a byte more makes a second", 1515, 66, 1448, 2, 1515 + 66),
        ("two full segments", 66 + 2896, 66, 1448, 2, 2 * 1514),
        ("45 segments", 66 + 45 * 1448, 66, 1448, 45, 45 * 1514),
        ("headers only", 66, 66, 1448, 1, 66),
        ("headers beyond the frame", 60, 66, 1448, 1, 60),
        ("no headers known", 3000, 0, 1000, 3, 3000),
    ];
    let mut pool = pool();
    for &(name, len, headers, gso_size, packets, bytes) in rows {
        let mut frame = pool.alloc(len).unwrap();
        let meta = frame.meta_mut();
        (meta.payload, meta.hdr_len, meta.gso_size) = (headers, 14, gso_size);
        meta.gso = if gso_size == 0 { GsoType::None } else { GsoType::TcpV4 };
        if headers == 0 {
            meta.hdr_len = 0;
        }
        assert_eq!(frame.wire(), Count { frames: 1, packets, bytes }, "{name}");
        pool.free(frame);
    }
}

proptest! {
    /// Against a segmenter that really counts the pieces.
    #[test]
    fn wire_equals_the_sum_of_the_segments(
        headers in 14u16..200, payload in 0usize..64_000, gso_size in 1u16..=9000, parsed: bool,
    ) {
        let mut pool = pool();
        let mut frame = pool.alloc(usize::from(headers) + payload).unwrap();
        let meta = frame.meta_mut();
        (meta.gso, meta.gso_size) = (GsoType::UdpL4, gso_size);
        if parsed { meta.payload = headers } else { meta.hdr_len = headers }
        let (mut packets, mut bytes, mut rest) = (0, 0, payload);
        loop {
            let piece = rest.min(usize::from(gso_size));
            packets += 1;
            bytes += (usize::from(headers) + piece) as u64;
            rest -= piece;
            if rest == 0 { break }
        }
        prop_assert_eq!(frame.wire(), Count { frames: 1, packets, bytes });
        pool.free(frame);
    }
}
