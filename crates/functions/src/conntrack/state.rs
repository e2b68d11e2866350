//! How long a connection in each state may be silent, and the states' words.

use pipeline::connection::{TcpState, Track};
use wire::ip::protocol;

const SECOND: u32 = 1000;

/// How long a connection may be without a packet, ms.
pub fn idle_limit_ms(track: &Track, proto: u8) -> u32 {
    match (track.tcp, proto) {
        (TcpState::SynSent | TcpState::SynReceived, _) => 30 * SECOND,
        // RFC 5382 (REQ-5): at least 2 hours and 4 minutes.
        (TcpState::Established, _) => (2 * 60 + 4) * 60 * SECOND,
        (TcpState::FinWait | TcpState::Closing, _) => 120 * SECOND,
        (TcpState::Closed, _) => 10 * SECOND,
        // RFC 5508 (REQ-1): at least 60 seconds.
        (TcpState::None, protocol::ICMP | protocol::ICMPV6) => 60 * SECOND,
        // RFC 4787 (REQ-5): at least 2 minutes for a conversation; a question without an answer is none yet.
        (TcpState::None, _) if track.replied => 180 * SECOND,
        (TcpState::None, _) => 30 * SECOND,
    }
}

/// The state in a word.
pub fn state_word(track: &Track) -> &'static str {
    match track.tcp {
        TcpState::None if track.replied => "established",
        TcpState::None => "new",
        TcpState::SynSent => "syn_sent",
        TcpState::SynReceived => "syn_received",
        TcpState::Established => "established",
        TcpState::FinWait => "fin_wait",
        TcpState::Closing => "closing",
        TcpState::Closed => "closed",
    }
}
