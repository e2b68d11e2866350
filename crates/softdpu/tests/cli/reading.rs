//! What is read: as JSON and YAML by name, as tables to the letter.

use crate::daemon::{BASE, Daemon, Place, wait_for};
use crate::hosts::{self, Hosts};
use crate::{Case, in_lab, with_taps};
use lab::Lab;
use lab::traffic::{Ping, RawSender, UdpFrame, UdpReceiver, UdpSend};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;
use wire::ethernet::MacAddr;

pub const CASES: &[Case] = &[
    ("json_and_yaml", json_and_yaml),
    ("tables_to_the_letter", tables_to_the_letter),
    ("counters_of_real_packets", counters_of_real_packets),
    ("traces", traces),
    ("closed_pipe", closed_pipe),
];

/// Takes away what differs from one moment to the next.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for moving in ["uptime_ns", "cpu_ns", "idle_ns"] {
                members.remove(moving);
            }
            members.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[track_caller]
fn assert_members(what: &str, object: &Value, members: &[&str]) {
    for member in members {
        assert!(object.get(member).is_some(), "{what} has no {member}: {object}");
    }
}

/// Sends from a to b so that there are flows, drops and sizes to be read.
fn traffic(hosts: &Hosts, place: &Place) {
    let address = "10.0.0.2:5000".parse().expect("address");
    let receiver = UdpReceiver::start(&hosts.b, address, true).expect("receiver");
    let send = UdpSend { count: Some(10), echo: Some(Duration::from_secs(2)), ..UdpSend::new(address) };
    let sent = send.start(&hosts.a).expect("sender").join().expect("sent");
    assert_eq!((sent.sent, sent.echoed), (10, 10), "{:?}", sent.errors);
    drop(receiver);
    let denied = UdpSend { count: Some(4), ..UdpSend::new("10.0.0.2:9".parse().expect("address")) };
    denied.start(&hosts.a).expect("sender").join().expect("sent");
    wait_for("four drops", || place.drops("acl_in_denied") == 4);
}

fn json_and_yaml() -> i32 {
    in_lab("json", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        traffic(&hosts, &place);

        let status = place.json("status");
        assert_members(
            "status",
            &status,
            &["unaccounted", "version", "generation", "rx", "tx", "dropped", "tables", "enis"],
        );
        assert_eq!(status["unaccounted"], 0);
        assert_eq!(status.get("bottleneck"), None, "absent until it is measured");
        let port = ["name", "kind", "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "drops", "sizes"];
        let ports = place.json("port list");
        assert_eq!(ports.as_array().map(Vec::len), Some(2));
        ports.as_array().expect("ports").iter().for_each(|p| assert_members("port", p, &port));
        assert_eq!(place.json("port show b"), ports[1]);
        let rule = ["id", "table", "priority", "state", "reason", "hits_device", "hits_host"];
        let rules = place.json("rule list");
        assert_eq!(rules.as_array().map(Vec::len), Some(13));
        rules.as_array().expect("rules").iter().for_each(|r| assert_members("rule", r, &rule));
        assert!(rules[0]["reason"].is_null(), "{}", rules[0]);
        let drops = place.json("drops");
        let denied =
            drops.as_array().expect("drops").iter().find(|d| d["reason"] == "acl_in_denied").expect("one");
        assert_members("drop", denied, &["point", "reason", "frames", "packets", "bytes"]);
        // 14 of Ethernet, 20 of IP, 8 of UDP, 64 of payload.
        assert_eq!(
            (&denied["frames"], &denied["packets"], &denied["bytes"]),
            (&4.into(), &4.into(), &(4 * 106).into())
        );
        let flows = place.json("flow list");
        let flow = &flows[0];
        assert_members(
            "flow",
            flow,
            &["tier", "protocol", "port", "src", "dst", "src_port", "dst_port", "state", "frames"],
        );
        assert_eq!(
            (&flow["protocol"], &flow["src"], &flow["dst_port"], &flow["frames"]),
            (&"udp".into(), &"10.0.0.1".into(), &5000.into(), &20.into())
        );
        let trace = place.json("trace --port a udp 10.0.0.1:1 > 10.0.0.2:9");
        assert_members("trace", &trace, &["packet", "port", "steps", "executor", "state", "outcome"]);
        assert_eq!(trace["outcome"]["drop"]["reason"], "acl_in_denied");
        trace["steps"]
            .as_array()
            .expect("steps")
            .iter()
            .for_each(|s| assert_members("step", s, &["executor", "stage", "entry", "rule", "why"]));

        for words in [
            "status",
            "port list",
            "port show a",
            "rule list",
            "rule show eni/a",
            "rule explain acl/a-out/rest",
            "flow list",
            "drops",
            "diff",
            "trace --port a udp 10.0.0.1:1 > 10.0.0.2:9",
        ] {
            // Hits are read from the device now and then, perhaps between the two.
            wait_for(&format!("{words} is one tree in JSON and YAML"), || {
                let mut json = place.json(words);
                let yaml = place.say(&format!("{words} -o yaml")).ok();
                let mut yaml: Value = serde_yaml_ng::from_str(&yaml).expect("YAML");
                without_times(&mut json);
                without_times(&mut yaml);
                json == yaml
            });
        }
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

const RULES: &str = "\
RULE                    TABLE    PRIORITY  STATE      IN DEVICE  HITS DEVICE  HITS HOST  REASON
eni/a                   eni      0         confirmed  5/5        0            0
eni/b                   eni      0         confirmed  5/5        0            0
acl/a-out/no-telnet     acl      10        confirmed  1/1        0            0
acl/b-in/ping           acl      10        confirmed  1/1        0            0
acl/six/all             acl      10        confirmed  1/1        0            0
acl/b-in/services       acl      20        confirmed  2/2        0            0
acl/a-out/rest          acl      100       confirmed  1/1        0            0
route/a/10.0.0.0/24     route    0         confirmed  1/1        0            0
route/a/10.9.0.0/16     route    0         confirmed  1/1        0            0
route/a/fd00::/64       route    0         confirmed  1/1        0            0
route/b/10.0.0.0/24     route    0         confirmed  1/1        0            0
route/b/fd00::/64       route    0         confirmed  1/1        0            0
mapping/blue/10.0.0.77  mapping  0         confirmed  1/1        0            0
";

const PORTS: &str = "\
NAME  KIND  INTERFACE  MTU   RX FRAMES  RX PACKETS  TX FRAMES  TX PACKETS  DROPS
a     tap   a          1500  0          0           0          0           0
b     tap   b          1500  0          0           0          0           0
";

const TRACE: &str = "\
packet   tcp 10.0.0.1:4000 > 10.0.0.2:23 from port a
version  1

WHERE   STAGE       RULE                 WHY
device  parse                            tcp 10.0.0.1:4000 > 10.0.0.2:23
device  flow_table                       no record
device  eni_in      eni/a                entry 1: ENI 1 of VNET 100, 02:00:00:00:00:0a, is on port 0
device  source      eni/a                entry 2 permits 10.0.0.1/32 to ENI 1
device  acl_out     acl/a-out/no-telnet  stage 1, group 1: entry 11 (priority 10) denies, terminating: tcp any > any port 23

decided by   device
state lives  none
outcome      dropped: acl_out_denied (An outbound ACL of the sender's ENI denies it.)
";

fn tables_to_the_letter() -> i32 {
    with_taps("tables", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        for (words, table) in [
            ("rule list", RULES),
            ("port list", PORTS),
            ("trace --port a tcp 10.0.0.1:4000 > 10.0.0.2:23", TRACE),
            ("flow list", "no connections\n"),
            ("drops", "nothing was dropped\n"),
            ("diff", "no difference: the device holds what is wanted\n"),
        ] {
            assert_eq!(place.say(words).ok(), table, "{words}");
        }
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

/// Frames that the kernel counted at each port's interface and the port did not, in and out: those from before the device was there.
fn uncounted(lab: &Lab, place: &Place) -> Vec<(u64, u64)> {
    let mut netlink = lab.dpu().expect("dpu").netlink().expect("netlink");
    let ports = place.json("port list");
    let of_port = |port: &Value| {
        let kernel = netlink.stats(port["name"].as_str().expect("name")).expect("counters");
        let count = |member: &str| port[member].as_u64().expect("a count");
        (kernel.rx_packets - count("rx_frames"), kernel.tx_packets - count("tx_frames"))
    };
    ports.as_array().expect("ports").iter().map(of_port).collect()
}

fn counters_of_real_packets() -> i32 {
    in_lab("counters", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        std::thread::sleep(Duration::from_millis(300));
        let before = uncounted(&lab, &place);
        for target in ["10.0.0.2", "fd00::2"] {
            let ping = Ping::new(target.parse().expect("address"));
            let report = ping.start(&hosts.a).expect("ping").join().expect("ping");
            assert_eq!((report.sent, report.lost(), report.wrong), (5, 0, 0), "{target}: {report:?}");
        }
        traffic(&hosts, &place);
        let sender = RawSender::open(&hosts.a, "eth0").expect("raw");
        let frame = |src_mac, src: &str| {
            let frame = UdpFrame {
                src_mac: MacAddr(src_mac),
                dst_mac: MacAddr([2, 0, 0, 0, 0, 0xb]),
                src: src.parse().expect("address"),
                dst: "10.0.0.2:5000".parse().expect("address"),
                payload: b"spoofed",
            };
            frame.build().expect("frame")
        };
        for _ in 0..3 {
            sender.send(&frame([2, 0, 0, 0, 0, 0xa], "10.0.0.9:1")).expect("send");
            sender.send(&frame([2, 0, 0, 0, 0, 0xc], "10.0.0.1:1")).expect("send");
            sender.send(&[0xff; 20]).expect("send");
        }
        wait_for("nine drops, each under its own name", || {
            ["spoofed_ip", "spoofed_mac", "ethertype_unsupported"]
                .iter()
                .all(|reason| place.drops(reason) == 3)
        });
        let table = place.say("drops").ok();
        let line = table.lines().find(|l| l.contains("spoofed_ip")).unwrap_or_default();
        assert!(
            line.contains("The source address is not one of the ENI's."),
            "a drop has its meaning beside it: {table}"
        );

        let flows = place.say("flow list").ok();
        let udp = flows.lines().find(|l| l.contains("udp")).unwrap_or_default();
        assert!(udp.contains("10.0.0.1:") && udp.contains("10.0.0.2:5000"), "{flows}");
        let first = place.say("flow list --limit 1 -o json");
        assert_eq!(first.status, 0);
        let rows: serde_json::Value = serde_json::from_str(&first.out).expect("JSON");
        assert_eq!(rows.as_array().map(Vec::len), Some(1));
        assert!(
            first.err.starts_with("these are the first 1, there are more"),
            "a cut is told: {}",
            first.err
        );
        let show = place.say("port show a").ok();
        assert!(show.contains("<= 128") && show.contains('#'), "a histogram: {show}");

        wait_for("the ports counted what the kernel counted", || uncounted(&lab, &place) == before);
        assert_eq!(place.json("status")["unaccounted"], 0);
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn traces() -> i32 {
    with_taps("traces", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        let arp = |target: &str| {
            format!(
                "ffffffffffff 02000000000a 0806 0001 0800 06 04 0001 02000000000a 0a000001 000000000000 {target}"
            )
        };
        // A solicitation of fd00::2 from a link-local address, which is what a host's own probes have; RFC 4861 (4.3).
        let solicitation = "3333ff000002 02000000000a 86dd 6000000000203aff fe800000000000000000000000000001 ff0200000000000000000001ff000002 87007c0e00000000 fd000000000000000000000000000002 010102000000000a";
        let rows = [
            ("allowed", "tcp 10.0.0.1:4000 > 10.0.0.2:5000 syn".to_owned(), "forwarded to port b"),
            ("allowed", "udp [fd00::1]:5 > [fd00::2]:53".into(), "forwarded to port b"),
            ("to a mapped address", "udp 10.0.0.1:1 > 10.0.0.77:5000".into(), "forwarded to port b"),
            ("a ping", "icmp 10.0.0.1 > 10.0.0.2".into(), "forwarded to port b"),
            ("denied on its way out", "tcp 10.0.0.1:4000 > 10.0.0.2:23".into(), "dropped: acl_out_denied"),
            ("denied on its way in", "tcp 10.0.0.1:4000 > 10.0.0.2:80".into(), "dropped: acl_in_denied"),
            ("spoofed", "udp 10.0.0.9:1 > 10.0.0.2:5000".into(), "dropped: spoofed_ip"),
            ("routed nowhere", "udp 10.0.0.1:1 > 192.0.2.1:5000".into(), "dropped: no_route"),
            ("routed to drop", "udp 10.0.0.1:1 > 10.9.0.1:5000".into(), "dropped: route_drop"),
            ("mapped nowhere", "udp 10.0.0.1:1 > 10.0.0.99:5000".into(), "dropped: no_mapping"),
            ("no connection", "tcp 10.0.0.1:1 > 10.0.0.2:5000 ack".into(), "dropped: tcp_no_connection"),
            ("ARP for a neighbour", arp("0a000002"), "ends here: arp_answered"),
            ("a neighbour solicited", solicitation.into(), "ends here: nd_answered"),
            ("ARP for nobody", arp("0a000063"), "dropped: arp_unknown_address"),
            (
                "a spoofed MAC address",
                arp("0a000002").replacen("02000000000a", "02000000000c", 1),
                "dropped: spoofed_mac",
            ),
        ];
        for (what, packet, outcome) in rows {
            let out = place.say(&format!("trace --port a {packet}")).ok();
            let last = out.lines().last().unwrap_or_default();
            assert!(last.starts_with(&format!("outcome      {outcome}")), "{what}: {out}");
            if packet.starts_with("ffff") && !outcome.contains("mac") {
                assert!(out.starts_with("packet   arp request 10.0.0.1 > 10.0.0."), "{out}");
            }
        }
        // One argument or many, and the bytes that the words stand for.
        let one = place.softdpu(&["trace", "--port", "a", "icmp 10.0.0.1 > 10.0.0.2"]).ok();
        assert!(one.ends_with("outcome      forwarded to port b\n"), "{one}");
        let colons = "02:00:00:00:00:01:02:00:00:00:00:0a:08:00:45:00:00:1c:00:00:40:00:40:11:26:cf:0a:00:00:01:0a:00:00:02:00:01:13:88:00:08:d8:52";
        let hex = place.softdpu(&["trace", "--port", "a", colons]).ok();
        assert!(hex.starts_with("packet   udp 10.0.0.1:1 > 10.0.0.2:5000 from port a"), "{hex}");
        assert_eq!(place.json("drops"), serde_json::json!([]), "a trace counts nothing");
        assert_eq!(place.json("flow list"), serde_json::json!([]), "and makes no connection");

        let line = place.say("trace --port z icmp 10.0.0.1 > 10.0.0.2").line(1);
        assert_eq!(line, "there is no port \"z\"; the ports are a, b");
        let line = place.say("port show z").line(1);
        assert_eq!(line, "there is no port \"z\"; the ports are a, b");
        for bad in [
            "tcp 10.0.0.1",
            "tcp a:1 > b:2",
            "tcp 10.0.0.1:1 > fd00::1",
            "gre 10.0.0.1 > 10.0.0.2",
            "tcp 10.0.0.1:1 > 10.0.0.2:2 sin",
            "0102",
            "0200000000010200000000010800f",
        ] {
            let line = place.say(&format!("trace --port a {bad}")).line(2);
            assert!(!line.is_empty(), "{bad}");
        }
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn closed_pipe() -> i32 {
    with_taps("pipe", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        for words in ["port list -o json", "rule list", "status -o yaml", "--help", ""] {
            let args: Vec<&str> = words.split_whitespace().collect();
            let (reader, writer) = std::io::pipe().expect("pipe");
            drop(reader);
            let mut child = place.command(&args).stdout(writer).stderr(Stdio::piped()).spawn().expect("run");
            let mut err = String::new();
            child.stderr.take().expect("stderr").read_to_string(&mut err).expect("read");
            let status = child.wait().expect("wait").code();
            assert_eq!((status, err.as_str()), (Some(0), ""), "{words}");
        }
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}
