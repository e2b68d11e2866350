//! Connection tracking: whether a packet fits the connection that it claims to belong to.
//!
//! [`open`] takes the first packet of a connection that policy allows, and gives the state that is kept of it, a [`Track`].
//! [`packet()`] holds each further packet of either direction against that state, and moves it on; a packet that does not fit is
//! dropped. For TCP that is the state machine of RFC 9293 as it looks from between the two ends, and the
//! windows (see `window.rs`); ICMP echo and UDP only know whether the other side has answered. [`reopen`] tells a packet that
//! starts a new connection under the key of one that has ended. [`idle_limit_ms`] says how long a connection may be silent.
//!
//! What is dropped here could not be used by its receiver either: no reordering, retransmission, lost segment or shrunk window
//! makes a legal connection fail.

mod state;
mod tcp;
#[cfg(test)]
mod tests;
mod window;

pub use state::{idle_limit_ms, state_word};

use packet::DropReason;
use pipeline::connection::Track;
use pipeline::parse::{Class, Headers};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// The state of the connection that a packet opens.
///
/// # Errors
/// A TCP segment other than a SYN without ACK is [`DropReason::TcpNoConnection`], an ICMP echo reply
/// [`DropReason::IcmpNoConnection`], an ICMP error [`DropReason::IcmpErrorNoConnection`].
pub fn open(headers: &Headers) -> Result<Track, DropReason> {
    match headers.class {
        Class::Tcp if is_opening(headers) => Ok(tcp::open(headers)),
        Class::Tcp => Err(DropReason::TcpNoConnection),
        Class::EchoReply => Err(DropReason::IcmpNoConnection),
        Class::IcmpError => Err(DropReason::IcmpErrorNoConnection),
        _ => Ok(Track::default()),
    }
}

/// Holds a packet of direction `dir` (0: the opener's) against the connection's state, and moves the state on.
///
/// # Errors
/// [`DropReason::TcpStateInvalid`] and [`DropReason::TcpWindowInvalid`].
#[inline]
pub fn packet(track: &mut Track, dir: usize, headers: &Headers) -> Result<(), DropReason> {
    match headers.class {
        // It speaks of the connection, and is none of its packets.
        Class::IcmpError => return Ok(()),
        Class::Tcp => tcp::packet(track, dir, headers)?,
        _ => {}
    }
    track.replied |= dir == 1;
    Ok(())
}

/// Whether a packet of this connection's key starts a new one instead: a SYN after both sides have sent their FIN, or after a RST
/// (RFC 9293, 3.6.1).
#[inline]
pub fn reopen(track: &Track, headers: &Headers) -> bool {
    tcp::is_over(track.tcp) && headers.class == Class::Tcp && is_opening(headers)
}

/// Whether the segment opens a connection: a SYN that answers none.
fn is_opening(headers: &Headers) -> bool {
    headers.tcp.flags & (SYN | ACK | RST | FIN) == SYN
}
