//! The states of a TCP connection, RFC 9293 (3.3.2, 3.10), as seen from between its two ends.
//!
//! What the ends must settle between themselves passes without a change of state: a SYN on a connection that one side has
//! forgotten, the acknowledgement that answers it (RFC 9293, 3.5.1; RFC 5961, 4), and a RST that is in the window but not exactly
//! where the sender stands (RFC 5961, 3). They end the old connection by a RST that is, and then open the new one.

use super::window::{acknowledgement_fits, advance, opened_by, sequence_fits};
use packet::DropReason;
use pipeline::connection::{TcpSide, TcpState, Track};
use pipeline::parse::{Headers, TcpFields};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// In [`TcpSide::scale`]: no scale was offered.
pub(super) const NO_SCALE: u8 = TcpFields::NO_SCALE;

/// A segment, or all segments of a super-frame, in sequence space.
pub(super) struct Segment {
    pub seq: u32,
    /// The sequence number behind it: SYN and FIN take one each.
    pub end: u32,
    pub ack: Option<u32>,
    /// Unscaled.
    pub window: u16,
    pub scale: u8,
    /// Bytes of data.
    pub len: u32,
    flags: u8,
}

impl Segment {
    fn of(headers: &Headers) -> Segment {
        let tcp = &headers.tcp;
        let len = headers.l3_len.saturating_sub(u32::from(headers.payload - headers.l3));
        let controls = (tcp.flags & SYN != 0) as u32 + (tcp.flags & FIN != 0) as u32;
        Segment {
            seq: tcp.seq,
            end: tcp.seq.wrapping_add(len).wrapping_add(controls),
            ack: (tcp.flags & ACK != 0).then_some(tcp.ack),
            window: tcp.window,
            scale: tcp.window_scale,
            len,
            flags: tcp.flags,
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub fn is_syn(&self) -> bool {
        self.has(SYN)
    }
}

/// The state after the opener's SYN.
pub(super) fn open(headers: &Headers) -> Track {
    let unknown = TcpSide { scale: NO_SCALE, ..TcpSide::default() };
    let opener = opened_by(&Segment::of(headers), &unknown);
    Track { tcp: TcpState::SynSent, replied: false, sides: [opener, unknown] }
}

/// Whether a SYN may open a new connection under the same key.
pub(super) fn is_over(state: TcpState) -> bool {
    matches!(state, TcpState::Closing | TcpState::Closed)
}

pub(super) fn packet(track: &mut Track, dir: usize, headers: &Headers) -> Result<(), DropReason> {
    let segment = Segment::of(headers);
    if track.tcp == TcpState::SynSent {
        return if dir == 0 { opening(track, &segment) } else { answering(track, &segment) };
    }
    if segment.has(RST) {
        return reset(track, dir, &segment);
    }
    match (segment.has(SYN), segment.ack) {
        (true, None) => Ok(()),
        (true, Some(_)) => synchronized(track, dir, &segment),
        (false, Some(ack)) => ordinary(track, dir, ack, &segment),
        // RFC 9293 (3.10.7.4, fifth): a segment without ACK is dropped.
        (false, None) => Err(DropReason::TcpStateInvalid),
    }
}

/// The opener, before there was an answer: it may repeat its SYN, try another, or refuse what it does not understand.
fn opening(track: &mut Track, segment: &Segment) -> Result<(), DropReason> {
    if segment.has(RST) {
        return Ok(());
    }
    if !segment.has(SYN) || segment.ack.is_some() {
        return Err(DropReason::TcpStateInvalid);
    }
    let [before, other] = track.sides;
    let mut opener = opened_by(segment, &other);
    if segment.end == before.end && opener.scale == NO_SCALE {
        // A repeated SYN may have lost its options; the answer tells which of the two was heard.
        opener.scale = before.scale;
    }
    track.sides[0] = opener;
    Ok(())
}

/// The other side's first words.
fn answering(track: &mut Track, segment: &Segment) -> Result<(), DropReason> {
    if !segment.has(SYN | RST) {
        // Half-open: it still has a connection that the opener has forgotten, and says where it stands. RFC 9293 (3.5.1).
        let challenge = segment.ack.is_some() && segment.len == 0 && !segment.has(FIN);
        return if challenge { Ok(()) } else { Err(DropReason::TcpStateInvalid) };
    }
    if !acknowledgement_fits(track, 1, segment) {
        return Err(DropReason::TcpWindowInvalid);
    }
    if segment.has(RST) {
        // RFC 9293 (3.10.7.3, second): only a RST that acknowledges the SYN is one.
        if segment.ack.is_none() {
            return Err(DropReason::TcpStateInvalid);
        }
        track.tcp = TcpState::Closed;
        return Ok(());
    }
    meet(track, segment);
    Ok(())
}

/// Takes over the other side from its SYN, with or without ACK (RFC 9293, 3.5: simultaneous open).
fn meet(track: &mut Track, segment: &Segment) {
    track.sides[1] = opened_by(segment, &track.sides[0]);
    track.tcp = TcpState::SynReceived;
    advance(track, 1, segment);
}

/// A RST: only one that is exactly where its sender stands ends the connection. RFC 5961 (3.2).
fn reset(track: &mut Track, dir: usize, segment: &Segment) -> Result<(), DropReason> {
    if !sequence_fits(track, dir, segment) {
        return Err(DropReason::TcpWindowInvalid);
    }
    if segment.seq == track.sides[dir].end {
        track.tcp = TcpState::Closed;
    }
    Ok(())
}

/// A SYN with ACK after the first: repeated, or the second of a simultaneous open, or from an end that has started anew.
fn synchronized(track: &mut Track, dir: usize, segment: &Segment) -> Result<(), DropReason> {
    if sequence_fits(track, dir, segment) && acknowledgement_fits(track, dir, segment) {
        advance(track, dir, segment);
        if track.tcp == TcpState::SynReceived && dir == 0 {
            track.tcp = TcpState::Established;
        }
        return Ok(());
    }
    if track.tcp == TcpState::SynReceived && dir == 1 && acknowledgement_fits(track, dir, segment) {
        meet(track, segment);
        return Ok(());
    }
    if track.tcp != TcpState::SynReceived {
        // It answers a SYN that passed here: neither end knows this connection any more, and the SYN will come again.
        track.tcp = TcpState::Closed;
    }
    Err(DropReason::TcpWindowInvalid)
}

/// A segment with ACK, and neither SYN nor RST.
fn ordinary(track: &mut Track, dir: usize, ack: u32, segment: &Segment) -> Result<(), DropReason> {
    if !sequence_fits(track, dir, segment) || !acknowledgement_fits(track, dir, segment) {
        return Err(DropReason::TcpWindowInvalid);
    }
    advance(track, dir, segment);
    track.sides[dir].fin |= segment.has(FIN);
    let (sender, receiver) = (&track.sides[dir], &track.sides[1 - dir]);
    track.tcp = match (track.tcp, sender.fin as u8 + receiver.fin as u8) {
        (TcpState::SynReceived, 0) if dir == 0 => TcpState::Established,
        (state @ (TcpState::SynReceived | TcpState::Established | TcpState::Closed), 0) => state,
        (TcpState::Closed, _) => TcpState::Closed,
        (_, 0 | 1) => TcpState::FinWait,
        // Both have ended, and this one, from behind its own FIN, has seen the other's.
        _ if ack == receiver.end && segment.seq == sender.end => TcpState::Closed,
        _ => TcpState::Closing,
    };
    Ok(())
}
