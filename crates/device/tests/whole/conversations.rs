//! Conversations, packet by packet, in the order of the rows: what a connection lets pass that no first packet may, and what
//! not. Whoever judges, the answers are the same.

use crate::common::*;
use crate::rows::EXECUTORS;
use packet::DropReason;
use testkit::Build;
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// A packet in at a port, and the port by which it leaves or the reason for which it does not.
type Row = (&'static str, usize, Vec<u8>, Result<usize, DropReason>);

fn run(name: &str, rows: impl Fn(Family) -> Vec<Row>) {
    for executor in EXECUTORS {
        for family in FAMILIES {
            let mut bench = executor.bench();
            for (step, port, frame, expect) in rows(family) {
                let outcome = bench.send_traced(port, &frame);
                let fate = match outcome.fate {
                    Fate::Sent(port) => Ok(port),
                    Fate::Dropped(reason, _) => Err(reason),
                    other => panic!("{name}: {step}: {other:?}"),
                };
                assert_eq!(fate, expect, "{name}: {step}, {family:?}, {executor:?}");
                if let (Ok(to), Some(left)) = (expect, outcome.left) {
                    assert_eq!(left.bytes[..6], mac(to), "{name}: {step}");
                    assert_eq!(left.bytes[6..], frame[6..], "{name}: {step}");
                }
            }
        }
    }
}

fn blue_1(build: Build) -> Vec<u8> {
    build.macs(mac(BLUE_1), GATEWAY).frame()
}

fn blue_2(build: Build) -> Vec<u8> {
    build.macs(mac(BLUE_2), GATEWAY).frame()
}

fn request(f: Family) -> Vec<u8> {
    blue_1(Build::udp(f.host(1), f.host(2)).ports(1000, 9).payload(4))
}

fn answer(f: Family) -> Vec<u8> {
    blue_2(Build::udp(f.host(2), f.host(1)).ports(9, 1000).payload(4))
}

#[test]
fn an_answer_needs_its_question() {
    run("UDP", |f| {
        vec![
            ("an answer without a question", BLUE_2, answer(f), Err(DropReason::AclOutDenied)),
            ("the question", BLUE_1, request(f), Ok(BLUE_2)),
            ("its answer, which no rule of the answerer allows", BLUE_2, answer(f), Ok(BLUE_1)),
            ("the question again", BLUE_1, request(f), Ok(BLUE_2)),
            (
                "another's answer",
                RED_2,
                {
                    let build = Build::udp(f.host(2), f.host(1)).ports(9, 1000);
                    build.macs(mac(RED_2), GATEWAY).frame()
                },
                Ok(RED_1),
            ),
            (
                "an answer to another port",
                BLUE_2,
                { blue_2(Build::udp(f.host(2), f.host(1)).ports(10, 1000)) },
                Err(DropReason::AclOutDenied),
            ),
        ]
    });
}

#[test]
fn echo() {
    run("echo", |f| {
        let request = |id| blue_1(Build::echo_request(f.host(1), f.host(2), id, 1).payload(8));
        let reply = |id| blue_2(Build::echo_reply(f.host(2), f.host(1), id, 1).payload(8));
        vec![
            ("a reply without a request", BLUE_2, reply(5), Err(DropReason::IcmpNoConnection)),
            ("a request", BLUE_1, request(5), Ok(BLUE_2)),
            ("its reply", BLUE_2, reply(5), Ok(BLUE_1)),
            ("a reply of another identifier", BLUE_2, reply(6), Err(DropReason::IcmpNoConnection)),
        ]
    });
}

#[test]
fn errors_belong_to_connections() {
    run("ICMP errors", |f| {
        let error = || blue_2(Build::unreachable(f.host(2), &request(f)));
        let of_reply = || blue_1(Build::unreachable(f.host(1), &answer(f)));
        let from_afar = blue_2(Build::unreachable(f.host(3), &request(f)));
        let unknown = Build::udp(f.host(1), f.host(2)).ports(1000, 10).frame();
        let strange = Build::udp(f.host(3), f.host(2)).ports(1000, 9).frame();
        // To blue-1, about a packet that blue-1 did not send.
        let (kind, code) = if f == Family::V4 { (3, 3) } else { (1, 4) };
        let about_another = Build::icmp(f.host(2), f.host(1), kind, code, [0; 4]);
        let about_another = about_another.bytes(&strange[14..14 + f.header() + 8]);
        vec![
            ("an error about nothing", BLUE_2, error(), Err(DropReason::IcmpErrorNoConnection)),
            ("the packet", BLUE_1, request(f), Ok(BLUE_2)),
            ("an error about it", BLUE_2, error(), Ok(BLUE_1)),
            ("the answer", BLUE_2, answer(f), Ok(BLUE_1)),
            ("an error about the answer", BLUE_1, of_reply(), Ok(BLUE_2)),
            ("an error of a spoofed sender", BLUE_2, from_afar, Err(DropReason::SpoofedIp)),
            (
                "an error about another connection",
                BLUE_2,
                blue_2(Build::unreachable(f.host(2), &unknown)),
                Err(DropReason::IcmpErrorNoConnection),
            ),
            (
                "an error about another's packet",
                BLUE_2,
                blue_2(about_another),
                Err(DropReason::IcmpQuoteInvalid),
            ),
        ]
    });
}

#[test]
fn tcp() {
    run("TCP", |f| {
        let out = |flags, seq, ack, payload| {
            blue_1(Build::tcp(f.host(1), f.host(2)).flags(flags).numbers(seq, ack).payload(payload))
        };
        let back = |flags, seq, ack, payload| {
            let build = Build::tcp(f.host(2), f.host(1)).ports(80, 1000);
            blue_2(build.flags(flags).numbers(seq, ack).payload(payload))
        };
        vec![
            ("data without connection", BLUE_1, out(ACK, 100, 500, 8), Err(DropReason::TcpNoConnection)),
            ("the SYN", BLUE_1, out(SYN, 99, 0, 0), Ok(BLUE_2)),
            ("data before the answer", BLUE_1, out(ACK, 100, 500, 8), Err(DropReason::TcpStateInvalid)),
            ("the SYN again", BLUE_1, out(SYN, 99, 0, 0), Ok(BLUE_2)),
            (
                "an answer to another SYN",
                BLUE_2,
                back(SYN | ACK, 499, 7777, 0),
                Err(DropReason::TcpWindowInvalid),
            ),
            ("the answer", BLUE_2, back(SYN | ACK, 499, 100, 0), Ok(BLUE_1)),
            ("the third", BLUE_1, out(ACK, 100, 500, 0), Ok(BLUE_2)),
            ("data", BLUE_1, out(ACK, 100, 500, 8), Ok(BLUE_2)),
            ("an ACK", BLUE_2, back(ACK, 500, 108, 0), Ok(BLUE_1)),
            ("beyond the window", BLUE_1, out(ACK, 10_000_000, 500, 8), Err(DropReason::TcpWindowInvalid)),
            ("a RST from elsewhere", BLUE_2, back(RST, 10_000_000, 0, 0), Err(DropReason::TcpWindowInvalid)),
            ("without ACK", BLUE_1, out(0x08, 108, 0, 8), Err(DropReason::TcpStateInvalid)),
            (
                "an acknowledgement of what was not sent",
                BLUE_2,
                back(ACK, 500, 900, 0),
                Err(DropReason::TcpWindowInvalid),
            ),
            ("data again", BLUE_1, out(ACK, 108, 500, 8), Ok(BLUE_2)),
            ("FIN", BLUE_1, out(FIN | ACK, 116, 500, 0), Ok(BLUE_2)),
            ("FIN of the other", BLUE_2, back(FIN | ACK, 500, 117, 0), Ok(BLUE_1)),
            ("the last ACK", BLUE_1, out(ACK, 117, 501, 0), Ok(BLUE_2)),
            ("a new connection under the same key", BLUE_1, out(SYN, 7000, 0, 0), Ok(BLUE_2)),
            ("refused", BLUE_2, back(RST | ACK, 0, 7001, 0), Ok(BLUE_1)),
        ]
    });
}

#[test]
fn a_connection_outlives_its_silence_no_longer_than_its_state_says() {
    for executor in EXECUTORS {
        for family in FAMILIES {
            let mut bench = executor.bench();
            let open = |bench: &mut Bench| bench.send(BLUE_1, &request(family)[..]).fate;
            let reply = |bench: &mut Bench| bench.send(BLUE_2, &answer(family)[..]).fate;
            assert_eq!(open(&mut bench), Fate::Sent(BLUE_2));
            bench.pass(25);
            assert_eq!(reply(&mut bench), Fate::Sent(BLUE_1), "25 s later, {executor:?}");
            bench.pass(120);
            assert_eq!(
                reply(&mut bench),
                Fate::Sent(BLUE_1),
                "two minutes later: RFC 4787 (REQ-5), {executor:?}"
            );
            bench.pass(190);
            assert_eq!(bench.tiers(), (0, 0, 0), "{executor:?}");
            assert!(matches!(reply(&mut bench), Fate::Dropped(DropReason::AclOutDenied, _)), "{executor:?}");
        }
    }
}
