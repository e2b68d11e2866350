//! Scripts of segments, one that each rule lets pass, and one that it does not. `exchange.rs` has whole conversations.

mod exchange;
mod scripts;

use super::*;
use crate::testing::addr;
use packet::Meta;
use pipeline::connection::{TcpSide, TcpState};
use pipeline::key::{FlowKey, FlowKind};
use pipeline::parse::{TcpFields, parse};
use proptest::prelude::*;

/// Headers of a segment without data, to be filled in.
fn blank() -> Headers {
    #[rustfmt::skip]
    let frame = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0,
        0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0x66, 0xce, 10, 0, 0, 1, 10, 0, 0, 2,
        0x13, 0x88, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0,
    ];
    parse(&frame, &Meta::default()).unwrap()
}

/// A segment: flags, sequence number, data; by default a window of 1000 and no acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Seg {
    tcp: TcpFields,
    len: u32,
}

fn seg(flags: u8, seq: u32, len: u32) -> Seg {
    let tcp = TcpFields { seq, ack: 0, window: 1000, flags, window_scale: TcpFields::NO_SCALE };
    Seg { tcp, len }
}

impl Seg {
    fn ack(mut self, ack: u32) -> Seg {
        self.tcp.flags |= ACK;
        self.tcp.ack = ack;
        self
    }

    fn window(mut self, window: u16) -> Seg {
        self.tcp.window = window;
        self
    }

    fn scale(mut self, scale: u8) -> Seg {
        self.tcp.window_scale = scale;
        self
    }

    fn headers(self) -> Headers {
        let mut headers = blank();
        headers.tcp = self.tcp;
        headers.l3_len = 40 + self.len;
        headers
    }
}

fn of_class(class: Class) -> Headers {
    let mut headers = blank();
    headers.class = class;
    headers.tcp = TcpFields::default();
    if matches!(class, Class::EchoRequest | Class::EchoReply) {
        let kind = if class == Class::EchoReply { FlowKind::EchoReply } else { FlowKind::EchoRequest };
        headers.key = FlowKey::echo(addr("10.0.0.1"), addr("10.0.0.2"), 7, 1, kind);
    }
    headers
}

#[test]
fn what_may_open_a_connection() {
    let rows = [
        ("SYN", seg(SYN, 1, 0).headers(), Ok("syn_sent")),
        ("SYN with data", seg(SYN, 1, 100).headers(), Ok("syn_sent")),
        ("ACK", seg(0, 1, 0).ack(1).headers(), Err(DropReason::TcpNoConnection)),
        ("data", seg(0, 1, 100).ack(1).headers(), Err(DropReason::TcpNoConnection)),
        ("SYN-ACK", seg(SYN, 1, 0).ack(1).headers(), Err(DropReason::TcpNoConnection)),
        ("FIN", seg(FIN, 1, 0).ack(1).headers(), Err(DropReason::TcpNoConnection)),
        ("RST", seg(RST, 1, 0).headers(), Err(DropReason::TcpNoConnection)),
        ("UDP", of_class(Class::Udp), Ok("new")),
        ("echo request", of_class(Class::EchoRequest), Ok("new")),
        ("echo reply", of_class(Class::EchoReply), Err(DropReason::IcmpNoConnection)),
        ("ICMP error", of_class(Class::IcmpError), Err(DropReason::IcmpErrorNoConnection)),
        ("another protocol", of_class(Class::Other), Ok("new")),
    ];
    for (name, headers, expected) in rows {
        assert_eq!(open(&headers).map(|track| state_word(&track)), expected, "{name}");
    }
}

#[test]
fn udp_and_echo_are_established_by_an_answer() {
    for class in [Class::Udp, Class::EchoRequest] {
        let mut track = open(&of_class(class)).unwrap();
        packet(&mut track, 0, &of_class(class)).unwrap();
        assert_eq!(state_word(&track), "new");
        packet(&mut track, 1, &of_class(class)).unwrap();
        assert_eq!(state_word(&track), "established");
        packet(&mut track, 0, &of_class(class)).unwrap();
        assert_eq!(state_word(&track), "established");
    }
}

#[test]
fn an_icmp_error_is_not_an_answer() {
    for first in [of_class(Class::Udp), seg(SYN, 1, 0).headers()] {
        let track = open(&first).unwrap();
        let mut after = track;
        packet(&mut after, 1, &of_class(Class::IcmpError)).unwrap();
        assert_eq!(after, track);
    }
}

#[test]
fn idle_limits() {
    const MINUTE: u32 = 60_000;
    let tcp = |tcp| Track { tcp, ..Track::default() };
    let replied = Track { replied: true, ..Track::default() };
    let rows = [
        ("TCP, unanswered", tcp(TcpState::SynSent), 6, 30_000),
        ("TCP, handshake", tcp(TcpState::SynReceived), 6, 30_000),
        ("TCP, RFC 5382 (REQ-5)", tcp(TcpState::Established), 6, 124 * MINUTE),
        ("TCP, one FIN", tcp(TcpState::FinWait), 6, 2 * MINUTE),
        ("TCP, both FINs", tcp(TcpState::Closing), 6, 2 * MINUTE),
        ("TCP, over", tcp(TcpState::Closed), 6, 10_000),
        ("UDP, unanswered", Track::default(), 17, 30_000),
        ("UDP, RFC 4787 (REQ-5): above 2 minutes", replied, 17, 3 * MINUTE),
        ("ICMP, RFC 5508 (REQ-1)", Track::default(), 1, MINUTE),
        ("ICMP answered", replied, 1, MINUTE),
        ("ICMPv6", replied, 58, MINUTE),
        ("GRE answered", replied, 47, 3 * MINUTE),
    ];
    for (name, track, proto, limit) in rows {
        assert_eq!(idle_limit_ms(&track, proto), limit, "{name}");
    }
}

#[test]
fn what_reopens() {
    use TcpState::*;
    let syn = seg(SYN, 1, 0).headers();
    for (state, expected) in [
        (SynSent, false),
        (SynReceived, false),
        (Established, false),
        (FinWait, false),
        (Closing, true),
        (Closed, true),
    ] {
        assert_eq!(reopen(&Track { tcp: state, ..Track::default() }, &syn), expected, "{state:?}");
    }
    let closed = Track { tcp: Closed, ..Track::default() };
    for other in [seg(SYN, 1, 0).ack(1), seg(0, 1, 0).ack(1), seg(RST, 1, 0), seg(FIN, 1, 0).ack(1)] {
        assert!(!reopen(&closed, &other.headers()), "{other:?}");
    }
    assert!(!reopen(&Track::default(), &of_class(Class::Udp)));
}

proptest! {
    /// No segment, however wild, panics or leaves a window beyond what TCP can have.
    #[test]
    fn any_segments(
        first: u32,
        segments in proptest::collection::vec((any::<(u8, u32, u32, u16)>(), 0u32..65_536, 0u8..=15, 0usize..2), 0..40),
    ) {
        let mut track = open(&seg(SYN, first, 0).scale(14).headers()).unwrap();
        for ((flags, seq, ack, window), len, scale, dir) in segments {
            let scale = if scale == 15 { TcpFields::NO_SCALE } else { scale };
            let tcp = TcpFields { seq, ack, window, flags, window_scale: scale };
            let _ = packet(&mut track, dir, &Seg { tcp, len }.headers());
            for TcpSide { max_window, .. } in track.sides {
                prop_assert!(max_window <= 65_535 << 14);
            }
        }
    }
}
