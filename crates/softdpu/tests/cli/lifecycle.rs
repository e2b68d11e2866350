//! Processes come and go, packets do not care: kills, adoption, restarts, stop.

use crate::daemon::{BASE, Daemon, Place, alive, assert_nothing_left, processes, wait_for};
use crate::hosts::{self, Hosts};
use crate::{Case, in_lab, with_taps};
use lab::traffic::{Traffic, UdpReceiver, UdpSend, UdpSent};
use rustix::process::Signal;
use std::thread::sleep;
use std::time::Duration;

pub const CASES: &[Case] = &[
    ("supervisor_killed", supervisor_killed),
    ("controller_killed", controller_killed),
    ("device_killed", device_killed),
    ("stop_ends_all", stop_ends_all),
    ("no_controller", no_controller),
    ("another_configuration_is_not_adopted", another_configuration_is_not_adopted),
];

/// A stream of datagrams from host a to a service of host b, until stopped.
struct Stream {
    receiver: UdpReceiver,
    sender: Traffic<UdpSent>,
}

impl Stream {
    fn start(hosts: &Hosts) -> Stream {
        let address = "10.0.0.2:5000".parse().expect("address");
        let receiver = UdpReceiver::start(&hosts.b, address, false).expect("receiver");
        let sender = UdpSend { rate: 500, ..UdpSend::new(address) }.start(&hosts.a).expect("sender");
        let stream = Stream { receiver, sender };
        stream.wait_for_more("datagrams arrive");
        stream
    }

    fn received(&self) -> u64 {
        self.receiver.streams().iter().map(|s| s.received).sum()
    }

    fn wait_for_more(&self, what: &str) {
        let before = self.received();
        wait_for(what, || self.received() > before + 20);
    }

    /// Ends it; how many were lost.
    fn end(self) -> u64 {
        let sent = self.sender.stop().expect("sender");
        assert!(sent.errors.is_empty(), "{:?}", sent.errors);
        sleep(Duration::from_millis(100));
        let (streams, dropped) = self.receiver.stop().expect("receiver");
        assert_eq!(dropped, 0, "the receiver's own socket dropped some");
        assert_eq!(streams.len(), 1, "one sender");
        streams[0].lost_of(sent.sent)
    }
}

fn supervisor_killed() -> i32 {
    in_lab("supervisor", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        let stream = Stream::start(&hosts);
        let before = place.json("status");
        let rules = |place: &Place| {
            let list = place.json("rule list");
            let list = list.as_array().expect("rules").iter();
            list.map(|r| (r["id"].clone(), r["number"].clone(), r["revision"].clone(), r["entries"].clone()))
                .collect::<Vec<_>>()
        };
        let rules_before = rules(&place);
        let (device, controller) = (place.pid("device"), place.pid("controller"));

        daemon.kill();
        wait_for("the controller ends with its supervisor", || !alive(controller));
        assert!(alive(device));
        stream.wait_for_more("the device forwards alone");
        assert_eq!(processes().len(), 1, "the device alone");

        let next = Daemon::start(&place, &hosts::config());
        assert!(
            next.out().contains(&format!(
                "adopted the device that was running (process {})",
                device.as_raw_nonzero()
            ))
        );
        assert_eq!(place.pid("device"), device);
        let after = place.json("status");
        for member in ["generation", "version", "settled", "tables"] {
            let table = |s: &serde_json::Value| s[member].clone();
            assert_eq!(table(&after), table(&before), "{member}: nothing was installed again");
        }
        assert!(after["uptime_ns"].as_u64() > before["uptime_ns"].as_u64());
        assert_eq!(rules(&place), rules_before);
        for (id, ..) in rules_before {
            let id = id.as_str().expect("id").to_owned();
            let (state, reason) = place.rule(&id);
            assert!(["confirmed", "proven"].contains(&state.as_str()), "{id}: {state} {reason}");
        }
        stream.wait_for_more("after the adoption");
        assert_eq!(stream.end(), 0, "not one datagram was lost");
        assert_eq!(place.json("status")["unaccounted"], 0);
        assert_eq!(next.err(), "");

        assert_eq!(next.end(Signal::TERM), 0);
        assert!(!alive(device), "an adopted device ends with its supervisor too");
        assert_nothing_left(&lab, &place, &["lo", "a", "b"]);
    })
}

fn controller_killed() -> i32 {
    in_lab("controller", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        let stream = Stream::start(&hosts);
        let (version, device) = (place.json("status")["version"].clone(), place.pid("device"));

        let killed = place.kill("controller");
        wait_for("it is started again", || place.pid("controller") != killed);
        wait_for("it answers", || place.say("rule list").status == 0);
        place.wait_confirmed();
        assert_eq!(place.say("diff").ok(), "no difference: the device holds what is wanted\n");
        let list = place.json("rule list");
        for rule in list.as_array().expect("rules") {
            let state = rule["state"].as_str().expect("state");
            assert!(["confirmed", "proven"].contains(&state), "{rule}");
        }
        assert_eq!((place.json("status")["version"].clone(), place.pid("device")), (version, device));
        assert!(daemon.err().contains("the controller ended; it is started again"), "{}", daemon.err());
        stream.wait_for_more("afterwards");
        assert_eq!(stream.end(), 0, "not one datagram was lost");
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn device_killed() -> i32 {
    in_lab("device", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        let stream = Stream::start(&hosts);

        let killed = place.kill("device");
        wait_for("it is started again", || place.pid("device") != killed && place.say("status").status == 0);
        place.wait_confirmed();
        for (rule, state) in
            [("eni/a", "confirmed"), ("acl/b-in/services", "confirmed"), ("route/a/10.0.0.0/24", "confirmed")]
        {
            // A packet of the stream may have proven it since.
            assert!([state, "proven"].contains(&place.rule(rule).0.as_str()), "{:?}", place.rule(rule));
        }
        stream.wait_for_more("traffic is back");
        assert!(stream.end() > 0, "what came while nobody was there is lost");
        assert_eq!(place.json("status")["unaccounted"], 0);
        assert_eq!(place.say("diff").status, 0);
        assert!(daemon.err().contains("the device ended; it is started again"), "{}", daemon.err());
        assert_eq!(daemon.end(Signal::INT), 0);
        assert_nothing_left(&lab, &place, &["lo", "a", "b"]);
    })
}

fn stop_ends_all() -> i32 {
    with_taps("stop", |lab| {
        let place = Place::new(&lab);
        let mut daemon = Daemon::start(&place, BASE);
        let supervisor = place.pid("supervisor").as_raw_nonzero();
        let out = place.say("stop").ok();
        assert_eq!(out, format!("stopping the supervisor (process {supervisor})\n"));
        assert_eq!(daemon.wait(), 0);
        assert_nothing_left(&lab, &place, &["lo"]);

        let daemon = Daemon::start(&place, BASE);
        let device = place.pid("device");
        daemon.kill();
        let out = place.say("stop").ok();
        assert!(
            out.contains(&format!("stopping the device (process {})\n", device.as_raw_nonzero())),
            "{out}"
        );
        assert_nothing_left(&lab, &place, &["lo"]);
        let line = place.say("stop").line(1);
        assert!(line.starts_with("nothing runs in "), "{line}");

        // What a killed machine leaves, locks and sockets without processes, is in nobody's way.
        let daemon = Daemon::start(&place, BASE);
        daemon.kill();
        place.kill("device");
        let daemon = Daemon::start(&place, BASE);
        assert!(!daemon.out().contains("adopted"), "{}", daemon.out());
        assert_eq!(daemon.end(Signal::HUP), 0);
        assert_nothing_left(&lab, &place, &["lo"]);
    })
}

fn no_controller() -> i32 {
    in_lab("no-controller", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        let stream = Stream::start(&hosts);
        let controller = place.pid("controller");
        daemon.kill();
        wait_for("the controller ends", || !alive(controller));

        let status = place.say("status").ok();
        assert!(
            status.lines().any(|l| l.starts_with("controller ") && l.ends_with(" not connected")),
            "{status}"
        );
        let ports = place.json("port list");
        assert!(ports[0]["rx_packets"].as_u64() > Some(20), "{ports}");
        let flows = place.json("flow list");
        assert_eq!(flows[0]["dst"], "10.0.0.2", "{flows}");
        assert!(place.json("drops").is_array());
        let trace = place.say("trace --port a tcp 10.0.0.1:4000 > 10.0.0.2:23").ok();
        assert!(trace.contains("acl_out_denied"), "{trace}");
        let acl = trace.lines().find(|l| l.contains("acl_out  ")).unwrap_or_default();
        let number = acl.split_whitespace().skip_while(|w| *w != "rule").nth(1);
        assert!(
            number.is_some_and(|n| n.parse::<u32>().is_ok()),
            "numbers where names are not known: {trace}"
        );

        for words in ["rule list", "diff", "rule prove eni/a", "apply -f config.toml"] {
            let line = place.say(words).line(1);
            assert!(line.starts_with("no controller answers at "), "{words}: {line}");
        }
        assert_eq!(stream.end(), 0);
        place.say("stop").ok();
        assert_nothing_left(&lab, &place, &["lo", "a", "b"]);
    })
}

fn another_configuration_is_not_adopted() -> i32 {
    with_taps("adopt", |lab| {
        let place = Place::new(&lab);
        Daemon::start(&place, BASE).kill();
        let device = place.pid("device");
        let rows = [
            ("profile = \"unlimited\"", "profile = \"tiny\"", "profile = tiny, the device has unlimited"),
            ("[device]", "[device]\nmiss_policy = \"drop\"", "miss_policy = drop, the device has fallback"),
            ("[device]", "[device]\nreset_policy = \"deny\"", "reset_policy = deny, the device has host"),
            ("[device]", "[device]\nworkers = 2", "workers = 2, the device has 1"),
            (
                "kind = \"tap\"",
                "kind = \"tap\"\nmtu = 1400",
                "the ports a (tap on a, MTU 1400), b (tap on b, MTU 1500), the device a (tap on a, MTU 1500)",
            ),
        ];
        for (old, new, words) in rows {
            place.config("other.toml", &BASE.replacen(old, new, 1));
            let line = place.run("other.toml").line(1);
            assert!(
                line.contains(words) && line.contains("stop it and run it with this configuration"),
                "{line}"
            );
            assert_eq!(
                (alive(device), processes().len()),
                (true, 1),
                "the device is untouched, nothing else started"
            );
        }
        let daemon = Daemon::start(&place, BASE);
        assert_eq!(place.pid("device"), device);
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}
