//! Changes of the desired state: all of it or nothing, and each rule's state with its reason.

use crate::daemon::{BASE, Daemon, Place, wait_for};
use crate::hosts::{self, Hosts};
use crate::{Case, in_lab, with_taps};
use lab::traffic::{UdpReceiver, UdpSend};
use rustix::process::Signal;
use std::fmt::Write;
use std::time::Duration;

pub const CASES: &[Case] = &[
    ("dry_run", dry_run),
    ("wrong_changes", wrong_changes),
    ("change_under_traffic", change_under_traffic),
    ("hardware_only_that_does_not_fit", hardware_only_that_does_not_fit),
    ("overflow_is_explained", overflow_is_explained),
    ("proofs", proofs),
    ("warm_reset", warm_reset),
];

/// The base with a changed rule and another mapping.
fn changed(config: &str) -> String {
    config.replace("5000-5999", "6000-6999").replace("10.0.0.77", "10.0.0.78")
}

/// The base on a tiny device, with more rules before the last of `a-out`.
fn tiny(rules: &str) -> String {
    let base = BASE.replace("unlimited", "tiny");
    base.replacen("  { id = \"rest\"", &format!("{rules}  {{ id = \"rest\""), 1)
}

fn dry_run() -> i32 {
    with_taps("dry-run", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        place.config("changed.toml", &changed(BASE));
        let before = place.json("rule list");
        let out = place.say("apply -f changed.toml --dry-run").ok();
        assert_eq!(
            out,
            "CHANGE   RULE\nchanged  acl/b-in/services\nadded    mapping/blue/10.0.0.78\nremoved  mapping/blue/10.0.0.77\n"
        );
        let json = place.json("apply -f changed.toml --dry-run");
        assert_eq!(json[0], serde_json::json!({ "rule": "acl/b-in/services", "what": "changed" }));
        assert_eq!(place.json("rule list"), before, "nothing was changed");
        assert_eq!(place.json("status")["version"], 1);
        assert_eq!(place.say("apply -f config.toml --dry-run").ok(), "nothing would change\n");

        let out = place.say("apply -f changed.toml").ok();
        assert_eq!(out, "revision 2 is in force, read back from the device\n");
        assert_eq!(place.rule("mapping/blue/10.0.0.78").0, "confirmed");
        assert_eq!(place.say("diff").status, 0);

        // The change is kept: what comes after a crash goes on from there.
        let killed = place.kill("controller");
        wait_for("it is started again", || {
            place.pid("controller") != killed && place.say("rule list").status == 0
        });
        place.wait_confirmed();
        assert_eq!(place.rule("mapping/blue/10.0.0.78").0, "confirmed");
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn wrong_changes() -> i32 {
    with_taps("wrong-changes", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        let before = (place.json("rule list"), place.json("status")["version"].clone());

        place.config(
            "wrong.toml",
            &BASE.replace(
                "\"allow\" },\n]\n\n[[acl_group]]\nacl_group_id = \"b-in\"",
                "\"alow\" },\n]\n\n[[acl_group]]\nacl_group_id = \"b-in\"",
            ),
        );
        let line = place.say("apply -f wrong.toml").line(2);
        assert!(line.starts_with("wrong.toml:") && line.contains("did you mean \"allow\"?"), "{line}");
        let line = place.say("apply -f none.toml").line(2);
        assert!(line.starts_with("none.toml: cannot read the file"), "{line}");

        // What the device is built from is fixed while it runs; the rest of the file is not taken either.
        for (old, new) in [
            ("profile = \"unlimited\"", "profile = \"tiny\""),
            ("[device]", "[device]\nmiss_policy = \"drop\""),
            ("kind = \"tap\"", "kind = \"tap\"\nmtu = 1400"),
        ] {
            place.config("fixed.toml", &changed(BASE).replacen(old, new, 1));
            for words in ["apply -f fixed.toml", "apply -f fixed.toml --dry-run"] {
                let line = place.say(words).line(1);
                assert!(
                    line.ends_with(
                        "this is fixed while the device runs: stop it and run it with this configuration"
                    ),
                    "{line}"
                );
            }
        }
        assert_eq!((place.json("rule list"), place.json("status")["version"].clone()), before);
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn change_under_traffic() -> i32 {
    in_lab("change", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let base = hosts::config();
        let daemon = Daemon::start(&place, &base);
        place.config("changed.toml", &changed(&base));
        let start = |address: &str| {
            let address = address.parse().expect("address");
            let receiver = UdpReceiver::start(&hosts.b, address, false).expect("receiver");
            (receiver, UdpSend { rate: 500, ..UdpSend::new(address) }.start(&hosts.a).expect("sender"))
        };
        let (changing, changing_sender) = start("10.0.0.2:5000");
        let (steady, steady_sender) = start("[fd00::2]:5000");
        let received = |r: &UdpReceiver| r.streams().iter().map(|s| s.received).sum::<u64>();
        wait_for("both run", || received(&changing) > 20 && received(&steady) > 20);

        place.say("apply -f changed.toml").ok();
        // Once a deny is confirmed, no packet passes any more.
        let at_return = received(&changing);
        wait_for("the running connection is judged anew", || place.drops("acl_in_denied") > 50);
        assert!(
            received(&changing) <= at_return + 1,
            "one at most was on its way: {at_return} {}",
            received(&changing)
        );
        let flows = place.json("flow list");
        assert!(flows.as_array().expect("flows").iter().all(|f| f["dst"] != "10.0.0.2"), "{flows}");

        place.say("apply -f config.toml").ok();
        let back = received(&changing);
        wait_for("allowed again", || received(&changing) > back + 20);

        drop(changing_sender);
        let sent = steady_sender.stop().expect("sender");
        std::thread::sleep(Duration::from_millis(100));
        let (streams, dropped) = steady.stop().expect("receiver");
        assert_eq!((streams[0].lost_of(sent.sent), dropped), (0, 0), "the other connection lost nothing");
        assert_eq!(place.json("status")["unaccounted"], 0);
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn hardware_only_that_does_not_fit() -> i32 {
    with_taps("hardware", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &tiny(""));
        let ports: Vec<String> = (0..13).map(|n| (8000 + 2 * n).to_string()).collect();
        let rule = format!(
            "  {{ id = \"must\", priority = 50, action = \"deny\", protocol = [\"udp\"], dst_port = [{}], offload = \"hardware-only\" }},\n",
            ports.join(", ")
        );
        place.config("must.toml", &changed(&tiny(&rule)));
        let line = place.say("apply -f must.toml").line(1);
        assert_eq!(
            line,
            "revision 2 is refused, what was before holds: rule acl/a-out/must: table_full{table=acl,used=12,limit=12}"
        );
        assert_eq!(
            place.rule("acl/a-out/must"),
            ("refused".into(), "table_full{table=acl,used=12,limit=12}".into())
        );
        let explained = place.say("rule explain acl/a-out/must").ok();
        assert!(explained.contains("not in force: table_full"), "{explained}");

        // Nothing of that revision came into force, not even what would have fitted.
        assert_eq!(place.say("diff").status, 0);
        // What had given way for the attempt is back in the device.
        for rule in ["mapping/blue/10.0.0.77", "acl/b-in/services", "acl/a-out/rest"] {
            wait_for(rule, || place.rule(rule).0 == "confirmed");
        }
        let trace = place.say("trace --port a udp 10.0.0.1:1 > 10.0.0.2:5000").ok();
        assert!(trace.ends_with("outcome      forwarded to port b\n"), "{trace}");

        let fits = rule.replace(", 8004, 8006, 8008, 8010, 8012, 8014, 8016, 8018, 8020, 8022, 8024", "");
        place.config("fits.toml", &tiny(&fits));
        place.say("apply -f fits.toml").ok();
        assert_eq!(place.rule("acl/a-out/must").0, "confirmed");
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn overflow_is_explained() -> i32 {
    with_taps("overflow", |lab| {
        let place = Place::new(&lab);
        let mut rules = String::new();
        for n in 0..12 {
            let _ = writeln!(
                rules,
                "  {{ id = \"p{n}\", priority = {}, action = \"deny\", protocol = [\"udp\"], dst_port = [{}] }},",
                20 + n,
                7000 + n
            );
        }
        let daemon = Daemon::start(&place, &tiny(""));
        assert_eq!(place.rule("acl/a-out/rest").0, "confirmed");
        place.config("full.toml", &tiny(&rules));
        place.say("apply -f full.toml").ok();
        let out = place.json("rule list");
        let by_state = |state: &str| -> Vec<String> {
            let rules = out.as_array().expect("rules").iter().filter(|r| r["state"] == state);
            rules.filter_map(|r| r["id"].as_str().map(str::to_owned)).collect()
        };
        let full = "table_full{table=acl,used=12,limit=12}";
        let outside = by_state("software");
        assert!(outside.contains(&"acl/a-out/p11".to_owned()), "{outside:?}");
        assert!(outside.contains(&"acl/a-out/rest".to_owned()), "{outside:?}");

        let lines = |rule: &str| place.say(&format!("rule explain {rule}")).ok();
        let last = lines("acl/a-out/p11");
        assert_eq!(place.rule("acl/a-out/p11"), ("software".into(), full.into()));
        assert!(last.contains("make room: 12 of 12 entries of table acl are taken"), "{last}");

        // The allow below them may not stay without what overrides it: its reason names a rule that is out, now.
        let (state, reason) = place.rule("acl/a-out/rest");
        let blocker =
            reason.strip_prefix("blocked_by{rule=").and_then(|r| r.strip_suffix('}')).unwrap_or_default();
        assert_eq!(state, "software");
        assert!(outside.contains(&blocker.to_owned()), "{reason}, and out are {outside:?}");
        let rest = lines("acl/a-out/rest");
        let blocked_by = rest.lines().find(|l| l.starts_with("blocked by")).unwrap_or_default();
        assert!(blocked_by.contains(blocker), "{rest}");
        assert!(rest.contains(&format!("bring {blocker} into the device")), "{rest}");
        let inside = lines("acl/a-out/p0");
        assert!(inside.contains("blocked by       none") && inside.contains("nothing is needed"), "{inside}");

        // The answer is the full policy's, whoever gives it.
        let rows = [
            ("udp 10.0.0.1:1 > 10.0.0.2:7000", "device", "dropped: acl_out_denied"),
            ("udp 10.0.0.1:1 > 10.0.0.2:7011", "host path", "dropped: acl_out_denied"),
            ("udp 10.0.0.1:1 > 10.0.0.2:5000", "host path", "forwarded to port b"),
        ];
        for (packet, executor, outcome) in rows {
            let trace = place.say(&format!("trace --port a {packet}")).ok();
            assert!(trace.contains(&format!("decided by   {executor}\n")), "{packet}: {trace}");
            assert!(trace.contains(&format!("outcome      {outcome}")), "{packet}: {trace}");
        }
        let proof = place.say("rule prove acl/a-out/p11");
        assert_eq!((proof.status, proof.err.as_str()), (1, ""), "{proof:?}");
        assert!(proof.out.contains("proven  no") && proof.out.contains(full), "{proof:?}");
        assert_eq!(place.say("diff").status, 0, "that is as it should be, and no difference");
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn proofs() -> i32 {
    with_taps("proofs", |lab| {
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, BASE);
        let rules = place.json("rule list");
        let ids: Vec<&str> =
            rules.as_array().expect("rules").iter().filter_map(|r| r["id"].as_str()).collect();
        for kind in ["eni/", "acl/a-out/no-telnet", "acl/b-in/services", "route/", "mapping/"] {
            assert!(ids.iter().any(|id| id.starts_with(kind)), "{kind} among {ids:?}");
        }
        for id in ids {
            let proof = place.json(&format!("rule prove {id}"));
            assert_eq!((&proof["rule"], &proof["proven"]), (&id.into(), &true.into()), "{proof}");
            let numbers = place.json(&format!("rule show {id}"));
            let judged = proof["trace"]["steps"].as_array().expect("steps").iter();
            let hit =
                judged.filter(|s| s["executor"] == "device").any(|s| s["rule"]["rule"] == numbers["number"]);
            assert!(hit, "the probe's way leads through the rule: {proof}");
            assert_eq!(place.rule(id).0, "proven", "{id}");
        }
        wait_for("the device's own counters say so", || {
            let rules = place.json("rule list");
            rules.as_array().is_some_and(|r| r.iter().all(|r| r["hits_device"].as_u64() > Some(0)))
        });
        let deny = place.json("rule prove acl/a-out/no-telnet");
        assert_eq!(deny["trace"]["outcome"]["drop"]["reason"], "acl_out_denied");
        let unknown = place.say("rule prove acl/a-out/none");
        assert_eq!((unknown.status, unknown.err.as_str()), (1, ""), "{unknown:?}");
        assert!(unknown.out.contains("no such rule is in force"), "{unknown:?}");
        let line = place.say("rule show acl/a-out/none").line(1);
        assert_eq!(line, "there is no rule \"acl/a-out/none\"; `softdpu rule list` shows all");
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}

fn warm_reset() -> i32 {
    in_lab("reset", |mut lab| {
        let hosts = Hosts::new(&mut lab);
        let place = Place::new(&lab);
        let daemon = Daemon::start(&place, &hosts::config());
        let address = "10.0.0.2:5000".parse().expect("address");
        let receiver = UdpReceiver::start(&hosts.b, address, false).expect("receiver");
        let sender = UdpSend { rate: 500, ..UdpSend::new(address) }.start(&hosts.a).expect("sender");
        wait_for("datagrams arrive", || receiver.streams().iter().any(|s| s.received > 20));
        let before = place.json("status");

        let out = place.say("reset --scope warm").ok();
        assert!(out.starts_with("reset        warm\ndevice back  after "), "{out}");
        let after = place.json("status");
        assert_eq!(after["generation"].as_u64(), before["generation"].as_u64().map(|g| g + 1));
        assert!(after["enis"].as_array().expect("ENIs").iter().all(|e| e["armed"] == true), "{after}");
        assert_eq!(place.say("diff").status, 0);
        let at = receiver.streams()[0].received;
        wait_for("the stream goes on", || receiver.streams()[0].received > at + 20);
        let sent = sender.stop().expect("sender");
        std::thread::sleep(Duration::from_millis(100));
        let (streams, _) = receiver.stop().expect("receiver");
        assert_eq!(streams[0].lost_of(sent.sent), 0, "the host path carried it meanwhile");
        assert_eq!(place.json("status")["unaccounted"], 0);
        assert_eq!(daemon.end(Signal::TERM), 0);
    })
}
