//! Traffic over a plain veth pair: the accounts are right when the network is, and when it is not.

use crate::links::{connect, ip};
use crate::{Case, in_lab};
use lab::traffic::{
    Amount, Ping, RawSender, Sniffer, TcpSend, TcpServer, TcpStage, UdpFrame, UdpReceiver, UdpSend, now,
};
use lab::{Host, Lab};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use wire::ethernet::MacAddr;

pub const CASES: &[Case] = &[
    ("ping_counts", ping_counts),
    ("udp_accounts_for_each_number", udp_accounts_for_each_number),
    ("udp_echo_and_errors", udp_echo_and_errors),
    ("tcp_delivers_whole", tcp_delivers_whole),
    ("tcp_failures_are_reported", tcp_failures_are_reported),
    ("tcp_wrong_receipt_is_seen", tcp_wrong_receipt_is_seen),
    ("raw_frames_and_sniffers", raw_frames_and_sniffers),
    ("dropping_traffic_stops_it", dropping_traffic_stops_it),
];

const A4: &str = "10.0.0.1";
const A6: &str = "fd00::1";
const B4: &str = "10.0.0.2";
const B6: &str = "fd00::2";

fn pair(lab: &mut Lab) -> (Host, Host) {
    let a = lab.add_host("a").expect("host");
    let b = lab.add_host("b").expect("host");
    connect(&a, &[A4, A6], &b, &[B4, B6]);
    (a, b)
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(ip(address), 0)
}

/// Waits for something that other threads bring about.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn ping_counts() -> i32 {
    in_lab("ping", |mut lab| {
        let (a, _b) = pair(&mut lab);
        for target in [B4, B6, A4] {
            let report = Ping::new(ip(target)).start(&a).expect("start").join().expect("ping");
            assert_eq!((report.sent, report.received, report.lost()), (5, 5, 0), "{target}: {report:?}");
            assert_eq!((report.duplicates, report.wrong), (0, 0));
            assert!(report.errors.is_empty(), "{report:?}");
            assert!(report.median().is_some_and(|t| t < 1_000_000_000), "{report:?}");
        }
        let begin = Instant::now();
        let nobody = Ping { timeout: Duration::from_millis(100), ..Ping::new(ip("10.0.0.77")) };
        let report = nobody.start(&a).expect("start").join().expect("ping");
        assert_eq!((report.sent, report.received, report.lost()), (5, 0, 5), "{report:?}");
        assert!(begin.elapsed() < Duration::from_secs(2));
        let unrouted = Ping::new(ip("192.0.2.1")).start(&a).expect("start").join().expect("ping");
        assert_eq!(unrouted.sent, 0);
        assert!(unrouted.errors.keys().any(|e| e.contains("unreachable")), "{unrouted:?}");
        let source = Some(ip("10.0.0.99"));
        assert!(Ping { source, ..Ping::new(ip(B4)) }.start(&a).is_err(), "not an address of a");
    })
}

fn udp_accounts_for_each_number() -> i32 {
    in_lab("udp", |mut lab| {
        let (a, b) = pair(&mut lab);
        for (from, to) in [(A4, B4), (A6, B6)] {
            let begin = now();
            let receiver = UdpReceiver::start(&b, at(to), false).expect("receiver");
            let send = UdpSend {
                source: Some(at(from)),
                rate: 5000,
                count: Some(1000),
                ..UdpSend::new(receiver.address())
            };
            let first = send.start(&a).expect("start");
            let second = UdpSend { stream: 9, size: 500, count: None, ..send }.start(&a).expect("start");
            let first = first.join().expect("first");
            let second = second.stop().expect("second");
            assert_eq!((first.sent, first.errors.len()), (1000, 0), "{first:?}");
            assert!(second.sent > 100, "{second:?}");
            let span = first.last_at - first.first_at;
            assert!((190_000_000..1_000_000_000).contains(&span), "1000 at 5000/s took {span} ns");
            let all = || receiver.streams().iter().map(|s| s.received).sum::<u64>();
            eventually("all arrive", || all() == first.sent + second.sent);
            let (streams, dropped) = receiver.stop().expect("stop");
            assert_eq!((streams.len(), dropped), (2, 0));
            for (sent, stream, size) in [(&first, 0, 64), (&second, 9, 500)] {
                let got = streams.iter().find(|s| s.stream == stream).expect("stream");
                assert_eq!(Some(got.source), sent.source);
                assert_eq!((got.received, got.lost_of(sent.sent)), (sent.sent, 0));
                assert_eq!((got.duplicates, got.reordered, got.missing.len()), (0, 0, 0));
                assert_eq!(got.bytes, sent.sent * size);
                assert_eq!(got.samples.iter().map(|s| s.count).sum::<u64>(), sent.sent);
                assert!(begin < got.first_at && got.first_at <= got.last_at && got.last_at < now());
            }
        }
    })
}

fn udp_echo_and_errors() -> i32 {
    in_lab("echo", |mut lab| {
        let (a, b) = pair(&mut lab);
        let receiver = UdpReceiver::start(&b, at(B4), true).expect("receiver");
        let echo = Some(Duration::from_secs(2));
        let send = UdpSend { count: Some(50), echo, ..UdpSend::new(receiver.address()) };
        let sent = send.start(&a).expect("start").join().expect("echo");
        assert_eq!((sent.sent, sent.echoed, sent.round_trips.len()), (50, 50, 50), "{sent:?}");

        let socket = a.run(|| std::net::UdpSocket::bind(at(A4))).expect("run").expect("bind");
        socket.send_to(b"not numbered", receiver.address()).expect("send");
        eventually("the foreign one is counted", || receiver.foreign() == 1);

        // Nobody listens any more: the kernel of b answers with port unreachable.
        let closed = receiver.address();
        receiver.stop().expect("stop");
        let send = UdpSend { count: Some(20), echo, ..UdpSend::new(closed) };
        let sent = send.start(&a).expect("start").stop().expect("stopped early");
        assert_eq!(sent.echoed, 0);
        let echo = Some(Duration::from_millis(100));
        let send = UdpSend { echo, ..send };
        let sent = send.start(&a).expect("start").join().expect("refused");
        assert!(sent.errors.contains_key("connection refused"), "{sent:?}");
        assert_eq!(sent.echoed, 0);
    })
}

fn tcp_delivers_whole() -> i32 {
    in_lab("tcp", |mut lab| {
        let (a, b) = pair(&mut lab);
        for (from, to) in [(A4, B4), (A6, B6)] {
            let server = TcpServer::start(&b, at(to)).expect("server");
            let amount = 20_000_001;
            let send =
                TcpSend { source: Some(at(from)), ..TcpSend::new(server.address(), Amount::Bytes(amount)) };
            let sent = send.start(&a).expect("start").join().expect("send");
            assert_eq!((sent.failure.clone(), sent.bytes), (None, amount));
            assert!(sent.verified(), "{sent:?}");
            assert!(sent.bits_per_second() > 1e6);
            assert!(sent.connected_at.is_some_and(|t| sent.began_at < t && t < sent.ended_at));

            let other = TcpSend { seed: 2, ..send.clone() };
            let other = other.start(&a).expect("start").join().expect("send");
            assert!(other.verified());
            assert_ne!(other.digest, sent.digest, "another seed, another content");

            // An endless one at a rate, watched while it runs, then ended in order.
            let rate = Some(4_000_000);
            let endless = TcpSend { rate, amount: Amount::UntilStopped, ..send };
            let endless = endless.start(&a).expect("start");
            let bytes = || server.connections().get(2).map_or(0, |c| c.bytes);
            eventually("half a second's worth arrives", || bytes() > 2_000_000);
            let endless = endless.stop().expect("stop");
            assert!(endless.verified(), "{endless:?}");
            let took = (endless.ended_at - endless.began_at) as f64 / 1e9;
            assert!(endless.bytes as f64 <= 4e6 * (took + 0.1), "{} bytes in {took} s", endless.bytes);

            let connections = server.stop().expect("stop");
            assert_eq!(connections.len(), 3);
            for (got, sent) in connections.iter().zip([&sent, &other, &endless]) {
                assert_eq!(Some(got.source), sent.source);
                assert_eq!((got.bytes, got.digest), (sent.bytes, sent.digest));
                assert!(got.complete && got.failure.is_none());
                assert_eq!(got.series.samples().iter().map(|s| s.bytes).sum::<u64>(), sent.bytes);
            }
        }
    })
}

fn tcp_failures_are_reported() -> i32 {
    in_lab("tcpfail", |mut lab| {
        let (a, b) = pair(&mut lab);
        let closed = SocketAddr::new(ip(B4), 9);
        let refused = TcpSend::new(closed, Amount::Bytes(1)).start(&a).expect("start").join().expect("end");
        let failure = refused.failure.clone().expect("failure");
        assert_eq!((failure.stage, failure.kind), (TcpStage::Connect, ErrorKind::ConnectionRefused));
        assert!(!refused.verified());

        let server = TcpServer::start(&b, at(B4)).expect("server");
        let stall_timeout = Duration::from_millis(300);
        let send = TcpSend { stall_timeout, ..TcpSend::new(server.address(), Amount::UntilStopped) };
        let stream = send.start(&a).expect("start");
        eventually("it flows", || server.connections().first().is_some_and(|c| c.bytes > 1_000_000));
        // From here on b hears nothing more.
        b.netlink().expect("netlink").set_down("eth0").expect("down");
        let cut = now();
        let sent = stream.join().expect("end");
        let failure = sent.failure.clone().expect("failure");
        assert_eq!((failure.stage, failure.kind), (TcpStage::Transfer, ErrorKind::TimedOut));
        assert!(failure.at >= cut + 200_000_000, "not before the patience ran out");
        assert!(!sent.verified());
        let connections = server.stop().expect("stop");
        assert!(!connections[0].complete);
        assert!(connections[0].last_at < failure.at);
        // All that was sent may have arrived with only its acknowledgements cut off.
        assert!(connections[0].bytes <= sent.bytes, "no more arrives than was sent");

        // Interrupted before its amount: not a success.
        let server = TcpServer::start(&a, at(A4)).expect("server");
        let slow = TcpSend { rate: Some(1000), ..TcpSend::new(server.address(), Amount::Bytes(1 << 30)) };
        let slow = slow.start(&a).expect("start");
        eventually("it connects", || !server.connections().is_empty());
        let slow = slow.stop().expect("stop");
        assert_eq!(slow.failure.expect("failure").kind, ErrorKind::Interrupted);
    })
}

fn tcp_wrong_receipt_is_seen() -> i32 {
    in_lab("receipt", |mut lab| {
        let (a, b) = pair(&mut lab);
        let listener = b.run(|| TcpListener::bind(at(B4))).expect("run").expect("bind");
        let target = listener.local_addr().expect("address");
        let liar = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("accept");
            let mut all = Vec::new();
            socket.read_to_end(&mut all).expect("read");
            let receipt = [(all.len() as u64).to_be_bytes(), 7_u64.to_be_bytes()].concat();
            socket.write_all(&receipt).expect("write");
        });
        let sent = TcpSend::new(target, Amount::Bytes(1000)).start(&a).expect("start").join().expect("end");
        liar.join().expect("join");
        assert_eq!((sent.failure.clone(), sent.receipt), (None, Some((1000, 7))));
        assert!(!sent.verified());
    })
}

fn raw_frames_and_sniffers() -> i32 {
    in_lab("raw", |mut lab| {
        let (a, b) = pair(&mut lab);
        // Without IPv6 there is no traffic but ours, so counts compare exactly.
        for host in [&a, &b] {
            host.sysctl("ipv6.conf.all.disable_ipv6", "1").expect("sysctl");
        }
        let link = |host: &Host| host.netlink().expect("netlink").link("eth0").expect("link");
        let spoofed = IpAddr::from([10, 9, 9, 9]);
        let from_spoofed = |f: &lab::traffic::SniffedFrame<'_>| f.bytes.get(26..30) == Some(&[10, 9, 9, 9]);
        let before = link(&b).stats;
        let at_b = Sniffer::start(&b, "eth0", from_spoofed).expect("sniffer");
        let at_a = Sniffer::start(&a, "eth0", from_spoofed).expect("sniffer");
        let frame = |src: IpAddr, dst_port: u16| {
            UdpFrame {
                src_mac: MacAddr(link(&a).mac),
                dst_mac: MacAddr(link(&b).mac),
                src: SocketAddr::new(src, 1),
                dst: SocketAddr::new(ip(B4), dst_port),
                payload: &[0; 100],
            }
            .build()
            .expect("frame")
        };
        let receiver = UdpReceiver::start(&b, at(B4), false).expect("receiver");
        let port = receiver.address().port();
        let sender = RawSender::open(&a, "eth0").expect("sender");
        let (bad, good) = (frame(spoofed, port), frame(ip(A4), port));
        for _ in 0..100 {
            sender.send(&bad).expect("send");
            sender.send(&good).expect("send");
        }
        // b's stack takes in what came from a; it is not numbered.
        eventually("they arrive", || at_b.counts().incoming == 200 && receiver.foreign() >= 100);
        let after = link(&b).stats;
        let (at_a, at_b) = (at_a.stop().expect("stop"), at_b.stop().expect("stop"));
        assert_eq!((at_b.matched, at_b.drops, at_b.outgoing, at_b.passed), (100, 0, 0, 200), "{at_b:?}");
        assert_eq!((at_a.matched, at_a.outgoing, at_a.incoming), (100, 200, 0), "{at_a:?}");
        assert_eq!(after.rx_packets - before.rx_packets, 200);
        assert_eq!(after.rx_bytes - before.rx_bytes, 200 * good.len() as u64);
        assert!(sender.send(&vec![0; 9000]).is_err(), "longer than the MTU");
        assert!(Sniffer::start(&a, "eth9", |_| true).is_err());
    })
}

fn dropping_traffic_stops_it() -> i32 {
    in_lab("drop", |mut lab| {
        let (a, b) = pair(&mut lab);
        let receiver = UdpReceiver::start(&b, at(B4), false).expect("receiver");
        let sender = UdpSend::new(receiver.address()).start(&a).expect("start");
        let received = || receiver.streams().first().map_or(0, |s| s.received);
        eventually("it flows", || received() > 10);
        drop(sender);
        std::thread::sleep(Duration::from_millis(20));
        let stopped_at = received();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(received(), stopped_at);
        let server = TcpServer::start(&b, at(B4)).expect("server");
        let stream = TcpSend::new(server.address(), Amount::UntilStopped).start(&a).expect("start");
        eventually("it flows", || server.connections().first().is_some_and(|c| c.bytes > 0));
        let begin = Instant::now();
        drop(stream);
        drop(server);
        assert!(begin.elapsed() < Duration::from_secs(2));
    })
}
