//! Conversations segment by segment: direction, segment, whether it passes, and the state afterwards.

use super::*;

const STATE: Result<(), DropReason> = Err(DropReason::TcpStateInvalid);
const WINDOW: Result<(), DropReason> = Err(DropReason::TcpWindowInvalid);
const PASS: Result<(), DropReason> = Ok(());

type Line = (usize, Seg, Result<(), DropReason>, &'static str);

/// Runs a script whose first line opens the connection.
fn run(name: &str, script: &[Line]) -> Track {
    let (dir, first, expected, state) = script[0];
    assert_eq!((dir, expected), (0, PASS), "{name}");
    let mut track = open(&first.headers()).unwrap();
    assert_eq!(state_word(&track), state, "{name}");
    for (number, &(dir, segment, expected, state)) in script.iter().enumerate().skip(1) {
        let before = track;
        assert_eq!(
            packet(&mut track, dir, &segment.headers()),
            expected,
            "{name}, line {number}: {segment:?}"
        );
        assert_eq!(state_word(&track), state, "{name}, line {number}");
        if expected.is_err() {
            assert_eq!(track.sides, before.sides, "{name}, line {number}: what is dropped moves no window");
        }
    }
    track
}

/// The opener begins at 100, the other side at 500; `more` follows the handshake.
fn established(name: &str, more: &[Line]) -> Track {
    let handshake = [
        (0, seg(SYN, 100, 0), PASS, "syn_sent"),
        (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
        (0, seg(0, 101, 0).ack(501), PASS, "established"),
    ];
    run(name, &[&handshake, more].concat())
}

#[test]
fn handshake() {
    established("three ways", &[]);
    run(
        "the last ACK is lost, data follows",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (0, seg(0, 101, 10).ack(501), PASS, "established"),
        ],
    );
    run(
        "the SYN-ACK is lost behind us, and the SYN repeated",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (0, seg(SYN, 100, 0), PASS, "syn_received"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (0, seg(0, 101, 0).ack(501), PASS, "established"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "established"),
        ],
    );
    run(
        "the SYN-ACK is lost before us",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
        ],
    );
    run(
        "another attempt before any answer",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (0, seg(SYN, 90_000_000, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), WINDOW, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(90_000_001), PASS, "syn_received"),
            (0, seg(0, 90_000_001, 0).ack(501), PASS, "established"),
        ],
    );
    run(
        "the other side answers anew, from another number (SYN cookies)",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (1, seg(SYN, 80_000_000, 0).ack(101), PASS, "syn_received"),
            (0, seg(0, 101, 0).ack(80_000_001), PASS, "established"),
            (1, seg(0, 80_000_001, 10).ack(101), PASS, "established"),
        ],
    );
    run(
        "data in the SYN and in front of the last ACK (RFC 7413)",
        &[
            (0, seg(SYN, 100, 300), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(401), PASS, "syn_received"),
            (1, seg(0, 501, 500).ack(401), PASS, "syn_received"),
            (1, seg(0, 1001, 500).ack(401), PASS, "syn_received"),
            (1, seg(0, 1502, 10).ack(401), WINDOW, "syn_received"),
            (0, seg(0, 401, 0).ack(1501), PASS, "established"),
        ],
    );
    run(
        "data in the SYN that the other side does not take",
        &[
            (0, seg(SYN, 100, 300), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (0, seg(0, 101, 300).ack(501), PASS, "established"),
        ],
    );
    run(
        "sequence numbers wrap",
        &[
            (0, seg(SYN, u32::MAX, 0), PASS, "syn_sent"),
            (1, seg(SYN, u32::MAX - 2, 0).ack(0), PASS, "syn_received"),
            (0, seg(0, 0, 0).ack(u32::MAX - 1), PASS, "established"),
            (1, seg(0, u32::MAX - 1, 10).ack(0), PASS, "established"),
            (0, seg(0, 0, 10).ack(8), PASS, "established"),
        ],
    );
}

#[test]
fn simultaneous_open() {
    let crossing = [(0, seg(SYN, 100, 0), PASS, "syn_sent"), (1, seg(SYN, 500, 0), PASS, "syn_received")];
    let endings: [(&str, &[Line]); 3] = [
        (
            "SYN-ACKs of both (RFC 9293, figure 8)",
            &[
                (0, seg(SYN, 100, 0).ack(501), PASS, "established"),
                (1, seg(SYN, 500, 0).ack(101), PASS, "established"),
            ],
        ),
        (
            "the other side's SYN-ACK first",
            &[
                (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
                (0, seg(SYN, 100, 0).ack(501), PASS, "established"),
            ],
        ),
        (
            "plain ACKs",
            &[
                (1, seg(0, 501, 0).ack(101), PASS, "syn_received"),
                (0, seg(0, 101, 0).ack(501), PASS, "established"),
            ],
        ),
    ];
    for (name, ending) in endings {
        let data = [
            (0, seg(0, 101, 900).ack(501), PASS, "established"),
            (1, seg(0, 501, 900).ack(1001), PASS, "established"),
        ];
        run(name, &[&crossing, ending, &data].concat());
    }
}

#[test]
fn what_does_not_fit_a_handshake() {
    let syn = (0, seg(SYN, 100, 0), PASS, "syn_sent");
    let rows: [(&str, Line); 9] = [
        ("the opener's ACK before any answer", (0, seg(0, 101, 0).ack(501), STATE, "syn_sent")),
        ("the opener's data before any answer", (0, seg(0, 101, 10).ack(501), STATE, "syn_sent")),
        ("the opener's SYN-ACK", (0, seg(SYN, 100, 0).ack(501), STATE, "syn_sent")),
        ("data of a side that has not answered", (1, seg(0, 501, 10).ack(101), STATE, "syn_sent")),
        ("a FIN of a side that has not answered", (1, seg(FIN, 501, 0).ack(101), STATE, "syn_sent")),
        ("no ACK at all", (1, seg(0, 501, 0), STATE, "syn_sent")),
        ("a SYN-ACK for something else", (1, seg(SYN, 500, 0).ack(102), WINDOW, "syn_sent")),
        ("a RST for something else", (1, seg(RST, 0, 0).ack(102), WINDOW, "syn_sent")),
        ("a RST that acknowledges nothing", (1, seg(RST, 0, 0), STATE, "syn_sent")),
    ];
    for (name, line) in rows {
        run(name, &[syn, line]);
    }
    run(
        "a second SYN-ACK for something else",
        &[
            syn,
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (1, seg(SYN, 80_000_000, 0).ack(102), WINDOW, "syn_received"),
        ],
    );
    run("refused", &[syn, (1, seg(RST, 0, 0).ack(101), PASS, "closed")]);
    run(
        "data without ACK",
        &[
            syn,
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (0, seg(0, 101, 10), STATE, "syn_received"),
        ],
    );
}

#[test]
fn half_open_connections_are_settled_by_their_ends() {
    // RFC 9293 (3.5.1, figure 9): the opener has forgotten the connection and opens anew.
    let track = established(
        "forgotten by the opener",
        &[
            (0, seg(SYN, 7_000_000, 0), PASS, "established"),
            (1, seg(0, 501, 0).ack(101), PASS, "established"),
            (0, seg(RST, 101, 0), PASS, "closed"),
        ],
    );
    assert!(reopen(&track, &seg(SYN, 7_000_000, 0).headers()));
    // The same, after the record was lost: the other side's answer and the opener's RST still pass.
    run(
        "forgotten by the opener and by us",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(0, 7_000_000, 0).ack(8_000_000), PASS, "syn_sent"),
            (0, seg(RST, 8_000_000, 0), PASS, "syn_sent"),
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
        ],
    );
    // Both have: the answer to the new SYN ends the record, and the SYN, repeated, founds another.
    let track = established(
        "forgotten by both",
        &[
            (0, seg(SYN, 7_000_000, 0), PASS, "established"),
            (1, seg(SYN, 9_000_000, 0).ack(7_000_001), WINDOW, "closed"),
        ],
    );
    assert!(reopen(&track, &seg(SYN, 7_000_000, 0).headers()));
    // A SYN delayed from the beginning of the connection harms nothing.
    established(
        "delayed SYN",
        &[(0, seg(SYN, 100, 0), PASS, "established"), (1, seg(0, 501, 10).ack(101), PASS, "established")],
    );
}

#[test]
fn windows() {
    // Both sides advertise 1000 bytes.
    let rows: [(&str, &[Line]); 15] = [
        ("a full window", &[(0, seg(0, 101, 1000).ack(501), PASS, "established")]),
        (
            "its last byte",
            &[
                (0, seg(0, 1100, 1).ack(501), PASS, "established"),
                (0, seg(0, 101, 999).ack(501), PASS, "established"),
            ],
        ),
        ("beyond the window", &[(0, seg(0, 1102, 1).ack(501), WINDOW, "established")]),
        (
            "the window moves with an acknowledgement",
            &[
                (0, seg(0, 101, 1000).ack(501), PASS, "established"),
                (0, seg(0, 1102, 1).ack(501), WINDOW, "established"),
                (1, seg(0, 501, 0).ack(1101), PASS, "established"),
                (0, seg(0, 1101, 1000).ack(501), PASS, "established"),
            ],
        ),
        (
            "a window that shrinks does not call back what was allowed",
            &[
                (1, seg(0, 501, 0).ack(101).window(10), PASS, "established"),
                (0, seg(0, 601, 500).ack(501), PASS, "established"),
            ],
        ),
        (
            "a closed window is probed",
            &[
                (0, seg(0, 101, 1000).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(1101).window(0), PASS, "established"),
                (0, seg(0, 1101, 1).ack(501), PASS, "established"),
                (0, seg(0, 1101, 1).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(1101).window(0), PASS, "established"),
                (1, seg(0, 501, 0).ack(1102).window(1000), PASS, "established"),
            ],
        ),
        (
            "a probe that is lost before us, and an acknowledgement behind it",
            &[
                (0, seg(0, 101, 1000).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(1101).window(0), PASS, "established"),
                (0, seg(0, 1102, 0).ack(501), PASS, "established"),
                (0, seg(0, 1103, 0).ack(501), WINDOW, "established"),
            ],
        ),
        (
            "a probe of a whole segment",
            &[
                (0, seg(0, 101, 1000).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(1101).window(0), PASS, "established"),
                (0, seg(0, 1101, 1460).ack(501), PASS, "established"),
                (0, seg(0, 2561, 0).ack(501), PASS, "established"),
                (0, seg(0, 2561, 1).ack(501), WINDOW, "established"),
                (1, seg(0, 501, 0).ack(2561), PASS, "established"),
            ],
        ),
        (
            "keepalives (RFC 9293, 3.8.4), with and without a byte",
            &[
                (0, seg(0, 100, 0).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(101), PASS, "established"),
                (0, seg(0, 100, 1).ack(501), PASS, "established"),
            ],
        ),
        (
            "a retransmission",
            &[
                (0, seg(0, 101, 500).ack(501), PASS, "established"),
                (1, seg(0, 501, 0).ack(601), PASS, "established"),
                (0, seg(0, 101, 500).ack(501), PASS, "established"),
            ],
        ),
        ("an acknowledgement of what was never sent", &[(1, seg(0, 501, 0).ack(102), WINDOW, "established")]),
        (
            "an acknowledgement too old",
            &[(1, seg(0, 501, 0).ack(101u32.wrapping_sub(131_071)), WINDOW, "established")],
        ),
        (
            "an acknowledgement just young enough",
            &[(1, seg(0, 501, 0).ack(101u32.wrapping_sub(131_070)), PASS, "established")],
        ),
        ("data too old", &[(0, seg(0, 101u32.wrapping_sub(65_546), 10).ack(501), WINDOW, "established")]),
        (
            "data just young enough",
            &[(0, seg(0, 101u32.wrapping_sub(65_545), 10).ack(501), PASS, "established")],
        ),
    ];
    for (name, more) in rows {
        established(name, more);
    }
}

#[test]
fn windows_scale_when_both_sides_offer() {
    // RFC 7323 (2.2): not in the SYN itself, and in neither direction unless both have offered.
    let open = |first: Seg, second: Seg, name: &str, more: &[Line]| {
        let handshake = [
            (0, first, PASS, "syn_sent"),
            (1, second, PASS, "syn_received"),
            (0, seg(0, 101, 0).ack(501), PASS, "established"),
        ];
        run(name, &[&handshake, more].concat())
    };
    let (syn, syn_ack) = (seg(SYN, 100, 0), seg(SYN, 500, 0).ack(101));
    open(
        syn.scale(2),
        syn_ack.scale(3),
        "both",
        &[
            (0, seg(0, 1101, 1).ack(501), PASS, "established"),
            (0, seg(0, 1102, 1).ack(501), WINDOW, "established"),
            (1, seg(0, 501, 0).ack(101), PASS, "established"),
            (0, seg(0, 8101, 1).ack(501), PASS, "established"),
            (0, seg(0, 8102, 1).ack(501), WINDOW, "established"),
            (1, seg(0, 4501, 1).ack(101), PASS, "established"),
            (1, seg(0, 4502, 1).ack(101), WINDOW, "established"),
        ],
    );
    for (name, first, second) in
        [("the opener only", syn.scale(2), syn_ack), ("the other side only", syn, syn_ack.scale(3))]
    {
        let more = [
            (1, seg(0, 501, 0).ack(101), PASS, "established"),
            (0, seg(0, 1102, 1).ack(501), WINDOW, "established"),
            (1, seg(0, 1502, 1).ack(101), WINDOW, "established"),
        ];
        open(first, second, name, &more);
    }
    run(
        "a repeated SYN without options does not take back what the other side has heard",
        &[
            (0, syn.scale(2), PASS, "syn_sent"),
            (0, syn, PASS, "syn_sent"),
            (1, syn_ack.scale(3), PASS, "syn_received"),
            (0, seg(0, 101, 0).ack(501), PASS, "established"),
            (1, seg(0, 4501, 1).ack(101), PASS, "established"),
        ],
    );
}

#[test]
fn super_frames_count_as_their_segments() {
    let open = [
        (0, seg(SYN, 100, 0).scale(7), PASS, "syn_sent"),
        (1, seg(SYN, 500, 0).ack(101).scale(7), PASS, "syn_received"),
        (0, seg(0, 101, 0).ack(501), PASS, "established"),
        (1, seg(0, 501, 0).ack(101), PASS, "established"),
        (0, seg(0, 101, 64_000).ack(501), PASS, "established"),
        (1, seg(0, 501, 0).ack(64_101), PASS, "established"),
        (1, seg(0, 501, 0).ack(64_102), WINDOW, "established"),
    ];
    run("64,000 bytes", &open);
}

#[test]
fn closing() {
    let rows: [(&str, &[Line]); 6] = [
        (
            "one after the other",
            &[
                (0, seg(FIN, 101, 0).ack(501), PASS, "fin_wait"),
                (1, seg(0, 501, 0).ack(102), PASS, "fin_wait"),
                (1, seg(0, 501, 500).ack(102), PASS, "fin_wait"),
                (0, seg(0, 102, 0).ack(1001), PASS, "fin_wait"),
                (1, seg(FIN, 1001, 0).ack(102), PASS, "closing"),
                (0, seg(0, 102, 0).ack(1002), PASS, "closed"),
            ],
        ),
        (
            "three segments",
            &[
                (1, seg(FIN, 501, 10).ack(101), PASS, "fin_wait"),
                (0, seg(FIN, 101, 0).ack(512), PASS, "closing"),
                (1, seg(0, 512, 0).ack(102), PASS, "closed"),
            ],
        ),
        (
            "both at once",
            &[
                (0, seg(FIN, 101, 0).ack(501), PASS, "fin_wait"),
                (1, seg(FIN, 501, 0).ack(101), PASS, "closing"),
                (0, seg(0, 102, 0).ack(502), PASS, "closed"),
                (1, seg(0, 502, 0).ack(102), PASS, "closed"),
            ],
        ),
        (
            "the last ACK is lost behind us",
            &[
                (0, seg(FIN, 101, 0).ack(501), PASS, "fin_wait"),
                (1, seg(FIN, 501, 0).ack(102), PASS, "closing"),
                (1, seg(FIN, 501, 0).ack(102), PASS, "closing"),
                (0, seg(0, 102, 0).ack(502), PASS, "closed"),
                (1, seg(FIN, 501, 0).ack(102), PASS, "closed"),
                (0, seg(0, 102, 0).ack(502), PASS, "closed"),
            ],
        ),
        (
            "data delayed behind the FIN",
            &[
                (0, seg(FIN, 201, 0).ack(501), PASS, "fin_wait"),
                (0, seg(0, 101, 100).ack(501), PASS, "fin_wait"),
                (1, seg(0, 501, 0).ack(202), PASS, "fin_wait"),
            ],
        ),
        (
            "an acknowledgement beyond the FIN",
            &[
                (0, seg(FIN, 101, 0).ack(501), PASS, "fin_wait"),
                (1, seg(0, 501, 0).ack(103), WINDOW, "fin_wait"),
            ],
        ),
    ];
    for (name, more) in rows {
        established(name, more);
    }
    run(
        "closed at once by the other side",
        &[
            (0, seg(SYN, 100, 0), PASS, "syn_sent"),
            (1, seg(SYN, 500, 0).ack(101), PASS, "syn_received"),
            (1, seg(FIN, 501, 0).ack(101), PASS, "fin_wait"),
            (0, seg(FIN, 101, 0).ack(502), PASS, "closing"),
        ],
    );
}

#[test]
fn resets() {
    let rows: [(&str, &[Line]); 6] = [
        (
            "exactly where the sender stands",
            &[
                (0, seg(0, 101, 50).ack(501), PASS, "established"),
                (0, seg(RST, 151, 0), PASS, "closed"),
                // What was in flight still passes, and so does the answer to it.
                (1, seg(0, 501, 10).ack(151), PASS, "closed"),
                (0, seg(RST, 151, 0), PASS, "closed"),
            ],
        ),
        ("with a meaningless ACK", &[(1, seg(RST, 501, 0).ack(0), PASS, "closed")]),
        (
            "in the window, elsewhere: for the receiver to challenge (RFC 5961, 3.2)",
            &[
                (0, seg(RST, 102, 0), PASS, "established"),
                (1, seg(0, 501, 0).ack(101), PASS, "established"),
                (0, seg(RST, 101, 0), PASS, "closed"),
            ],
        ),
        ("beyond the window", &[(0, seg(RST, 1102, 0), WINDOW, "established")]),
        ("long before it", &[(0, seg(RST, 101u32.wrapping_sub(65_536), 0), WINDOW, "established")]),
        (
            "half the sequence space away",
            &[
                (0, seg(RST, 101 + (1 << 31), 0), WINDOW, "established"),
                (1, seg(RST, 501 + (1 << 30), 0), WINDOW, "established"),
            ],
        ),
    ];
    for (name, more) in rows {
        established(name, more);
    }
}
