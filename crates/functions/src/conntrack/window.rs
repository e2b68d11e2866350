//! The windows of a TCP connection, after van Rooij, "Real Stateful TCP Packet Filtering in IP Filter".
//!
//! All that either end knows has passed here before, so bounds follow from what was seen. With `W` the largest window that the
//! receiver has ever advertised, a legal segment of the sender has
//!
//! 1. a sequence number at or below the highest that the receiver's acknowledgements and windows ever allowed (`max_end`), or
//!    without data, at or below the highest end that the sender has reached;
//! 2. its end at or above the highest end that the sender has reached, less `W`: what lies below was acknowledged, since not
//!    more than `W` can be in flight;
//! 3. an acknowledgement at or below the highest end that the other side has reached;
//! 4. an acknowledgement at or above that end, less twice the sender's own largest window: once for what is in flight, and once
//!    for what the other side itself tolerates (RFC 5961, 5.2).
//!
//! The highest values count, not the last ones, so that neither reordering nor a window that shrinks does harm. Bounds 2 and 4
//! never lie closer than [`TOLERANCE`]: what is so near is at worst a duplicate.

use super::tcp::{NO_SCALE, Segment};
use pipeline::connection::{TcpSide, Track};

/// The least distance of the lower bounds, bytes: a window without scale.
const TOLERANCE: u32 = 65_535;

/// Whether `a` is behind `b` in the order of sequence numbers, RFC 9293 (3.4).
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The one that is farther on.
fn later(a: u32, b: u32) -> u32 {
    if is_after(a, b) { a } else { b }
}

/// Bounds 1 and 2: whether the sender may send such a segment.
pub(super) fn sequence_fits(track: &Track, dir: usize, segment: &Segment) -> bool {
    let (sender, receiver) = (&track.sides[dir], &track.sides[1 - dir]);
    let highest = if segment.len == 0 { later(sender.max_end, sender.end) } else { sender.max_end };
    let reach = receiver.max_window.max(TOLERANCE);
    !is_after(segment.seq, highest) && (sender.end.wrapping_sub(segment.end) as i32) <= reach as i32
}

/// Bounds 3 and 4: whether the sender can have received what it acknowledges. A segment without ACK does not say.
pub(super) fn acknowledgement_fits(track: &Track, dir: usize, segment: &Segment) -> bool {
    let (sender, receiver) = (&track.sides[dir], &track.sides[1 - dir]);
    let reach = 2 * sender.max_window.max(TOLERANCE);
    segment.ack.is_none_or(|ack| receiver.end.wrapping_sub(ack) <= reach)
}

/// Takes over what a segment that fits says of both sides.
pub(super) fn advance(track: &mut Track, dir: usize, segment: &Segment) {
    let window = if segment.is_syn() {
        u32::from(segment.window) // never scaled: RFC 7323 (2.2)
    } else {
        u32::from(segment.window) << shift(track, dir)
    };
    let [first, second] = &mut track.sides;
    let (sender, receiver) = if dir == 0 { (first, second) } else { (second, first) };

    sender.end = later(sender.end, segment.end);
    sender.max_window = sender.max_window.max(window);
    // A closed window is probed with one byte behind it: RFC 9293 (3.8.6.1).
    let edge = segment.ack.unwrap_or(receiver.end).wrapping_add(window.max(1));
    receiver.max_end = later(receiver.max_end, edge);
}

/// The side of whoever sends this SYN; how far it may send follows from the window of the `other` side's, if that was seen.
pub(super) fn opened_by(segment: &Segment, other: &TcpSide) -> TcpSide {
    TcpSide {
        end: segment.end,
        max_end: segment.end.wrapping_add(other.max_window),
        max_window: u32::from(segment.window),
        scale: segment.scale,
        fin: false,
    }
}

/// How far a side's windows are shifted: not at all unless both sides have offered it. RFC 7323 (2.2).
fn shift(track: &Track, dir: usize) -> u8 {
    let [a, b] = [track.sides[0].scale, track.sides[1].scale];
    if a == NO_SCALE || b == NO_SCALE { 0 } else { track.sides[dir].scale }
}
