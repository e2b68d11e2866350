//! Hosts and the interfaces between them.

use crate::{Case, in_lab};
use lab::{DPU, Host, LabError, VethEnd};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

pub const CASES: &[Case] = &[
    ("hosts_are_apart", hosts_are_apart),
    ("veth_carries_and_counts", veth_carries_and_counts),
    ("links_move_and_change", links_move_and_change),
    ("bridge_connects", bridge_connects),
    ("routes_lead", routes_lead),
    ("refusals_say_what", refusals_say_what),
    ("run_dir_is_private", run_dir_is_private),
];

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

/// Joins two hosts by a veth pair `eth0`, `eth0`, with these addresses, up.
pub fn connect(a: &Host, a_ips: &[&str], b: &Host, b_ips: &[&str]) {
    let end = |host| VethEnd { host, name: "eth0", mac: None, mtu: None };
    a.netlink().expect("netlink").add_veth(end(a), end(b)).expect("veth");
    for (host, addresses) in [(a, a_ips), (b, b_ips)] {
        let mut netlink = host.netlink().expect("netlink");
        for address in addresses {
            let address = ip(address);
            let prefix = if address.is_ipv4() { 24 } else { 64 };
            netlink.add_address("eth0", address, prefix).expect("address");
        }
        netlink.set_up("eth0").expect("up");
    }
    for host in [a, b] {
        let mut netlink = host.netlink().expect("netlink");
        netlink.wait_running("eth0", Duration::from_secs(5)).expect("running");
    }
}

/// One datagram from `a` to `b`; panics unless it arrives at once: what the network is not ready
/// for is sent again after a second.
fn datagram(a: &Host, b: &Host, to: &str) {
    let receiver = b.run(|| UdpSocket::bind((ip(to), 0))).expect("run").expect("bind");
    receiver.set_read_timeout(Some(Duration::from_millis(900))).expect("timeout");
    let target = receiver.local_addr().expect("address");
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = a.run(|| UdpSocket::bind(any)).expect("run").expect("bind");
    sender.send_to(b"hello", target).expect("send");
    let mut buffer = [0; 16];
    assert_eq!(receiver.recv(&mut buffer).expect("receive"), 5);
}

fn hosts_are_apart() -> i32 {
    in_lab("apart", |mut lab| {
        let a = lab.add_host("a").expect("host");
        let b = lab.add_host("b").expect("host");
        for host in [&a, &b, lab.dpu().expect("dpu")] {
            let links = host.netlink().expect("netlink").links().expect("links");
            let names: Vec<_> = links.iter().map(|l| (l.name.as_str(), l.up)).collect();
            assert_eq!(names, [("lo", true)], "{}", host.name());
        }
        // The same address and port in two hosts: no clash.
        let bind = || UdpSocket::bind("127.0.0.1:7777").expect("bind");
        let _held = (a.run(bind).expect("run"), b.run(bind).expect("run"));
        assert_eq!(lab.hosts().map(Host::name).collect::<Vec<_>>(), ["a", "b", DPU]);
        assert!(matches!(lab.add_host("a"), Err(LabError::HostExists(_))));
        assert!(matches!(lab.add_host("A b"), Err(LabError::BadName(_))));
    })
}

fn veth_carries_and_counts() -> i32 {
    in_lab("veth", |mut lab| {
        let a = lab.add_host("a").expect("host");
        let b = lab.add_host("b").expect("host");
        connect(&a, &["10.0.0.1", "fd00::1"], &b, &["10.0.0.2", "fd00::2"]);
        let stats = |host: &Host| host.netlink().expect("netlink").stats("eth0").expect("stats");
        datagram(&a, &b, "10.0.0.2");
        datagram(&a, &b, "fd00::2");
        // The receiver's first: the kernel's own messages go on meanwhile.
        let to = stats(&b);
        let from = stats(&a);
        // Per datagram at least itself and the question for its neighbour.
        assert!(to.rx_packets >= 4, "{to:?}");
        assert!(from.tx_packets >= to.rx_packets, "{from:?} {to:?}");
        assert!(to.rx_bytes >= to.rx_packets * 14, "{to:?}");
    })
}

fn links_move_and_change() -> i32 {
    in_lab("move", |mut lab| {
        let a = lab.add_host("a").expect("host");
        let dpu = lab.dpu().expect("dpu").clone();
        let mac = [2, 0, 0, 0, 0, 7];
        let mut netlink = dpu.netlink().expect("netlink");
        netlink
            .add_veth(
                VethEnd { host: &dpu, name: "one", mac: Some(mac), mtu: Some(1400) },
                VethEnd { host: &dpu, name: "two", mac: None, mtu: None },
            )
            .expect("veth");
        let one = netlink.link("one").expect("link");
        assert_eq!((one.mac, one.mtu, one.up), (mac, 1400, false));
        netlink.set_mtu("two", 9000).expect("mtu");
        netlink.set_mac("two", [2, 0, 0, 0, 0, 8]).expect("mac");
        netlink.rename("two", "deux").expect("rename");
        netlink.set_up("deux").expect("up");
        assert!(netlink.link("deux").expect("link").up);
        assert!(!netlink.link("deux").expect("link").carrier, "its peer is down");
        let error = netlink.wait_running("deux", Duration::from_millis(20)).expect_err("down");
        assert_eq!(error.to_string(), "could not wait until deux is running: timed out");
        netlink.set_down("deux").expect("down");
        assert!(!netlink.link("deux").expect("link").up);
        netlink.move_to("deux", &a, "eth0").expect("move");
        assert!(netlink.link("deux").is_err());
        let moved = a.netlink().expect("netlink").link("eth0").expect("link");
        assert_eq!((moved.mtu, moved.mac), (9000, [2, 0, 0, 0, 0, 8]));
        netlink.delete("one").expect("delete");
        let left = a.netlink().expect("netlink").links().expect("links");
        assert_eq!(left.len(), 1, "both ends are gone: {left:?}");
    })
}

fn bridge_connects() -> i32 {
    in_lab("bridge", |mut lab| {
        let a = lab.add_host("a").expect("host");
        let b = lab.add_host("b").expect("host");
        let dpu = lab.dpu().expect("dpu").clone();
        let mut netlink = dpu.netlink().expect("netlink");
        netlink.add_bridge("br0").expect("bridge");
        netlink.set_up("br0").expect("up");
        for (host, port, address) in [(&a, "pa", "10.0.0.1"), (&b, "pb", "10.0.0.2")] {
            netlink
                .add_veth(
                    VethEnd { host: &dpu, name: port, mac: None, mtu: None },
                    VethEnd { host, name: "eth0", mac: None, mtu: None },
                )
                .expect("veth");
            netlink.set_master(port, "br0").expect("master");
            netlink.set_up(port).expect("up");
            let mut inner = host.netlink().expect("netlink");
            inner.add_address("eth0", ip(address), 24).expect("address");
            inner.set_up("eth0").expect("up");
            netlink.wait_running(port, Duration::from_secs(5)).expect("running");
        }
        datagram(&a, &b, "10.0.0.2");
    })
}

fn routes_lead() -> i32 {
    in_lab("routes", |mut lab| {
        let a = lab.add_host("a").expect("host");
        let b = lab.add_host("b").expect("host");
        connect(&a, &["10.0.0.1", "fd00::1"], &b, &["10.0.0.2", "fd00::2"]);
        let mut far = b.netlink().expect("netlink");
        far.add_address("lo", ip("192.0.2.1"), 32).expect("address");
        far.add_address("lo", ip("2001:db8::1"), 128).expect("address");
        far.wait_running("lo", Duration::from_secs(5)).expect("running");
        let unreachable = a.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("bind");
            socket.send_to(b"x", "192.0.2.1:9").map_err(|e| e.kind())
        });
        assert_eq!(unreachable.expect("run"), Err(std::io::ErrorKind::NetworkUnreachable));
        let mut near = a.netlink().expect("netlink");
        near.add_route(ip("192.0.2.0"), 24, Some(ip("10.0.0.2")), "eth0").expect("route");
        near.add_route(ip("::"), 0, Some(ip("fd00::2")), "eth0").expect("default route");
        datagram(&a, &b, "192.0.2.1");
        datagram(&a, &b, "2001:db8::1");
    })
}

fn refusals_say_what() -> i32 {
    in_lab("refusals", |lab| {
        let dpu = lab.dpu().expect("dpu");
        let mut netlink = dpu.netlink().expect("netlink");
        let error = netlink.set_up("eth9").expect_err("no such interface").to_string();
        assert_eq!(error, "could not find the interface eth9: No such device (os error 19)");
        netlink.add_bridge("br0").expect("bridge");
        let error = netlink.add_bridge("br0").expect_err("taken").to_string();
        assert_eq!(error, "could not make the bridge br0: File exists (os error 17)");
        let error = dpu.sysctl("ipv4.ip_forward", "many").expect_err("not a number").to_string();
        assert!(error.starts_with("could not set sysctl ipv4.ip_forward to many: "), "{error}");
        let error = lab.host("dpi").expect_err("no such host").to_string();
        assert!(error.contains("did you mean `dpu`?"), "{error}");
    })
}

fn run_dir_is_private() -> i32 {
    let status = in_lab("rundir", |lab| {
        std::fs::write(lab.run_dir().join("file"), "x").expect("write");
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let line = format!("softdpu-lab {} tmpfs ", lab.run_dir().display());
        assert_eq!(mounts.lines().filter(|l| l.starts_with(&line)).count(), 1, "{mounts}");
    });
    // Outside, whichever directory was used, the file is not to be seen.
    let user = format!("softdpu-lab-{}", rustix::process::geteuid().as_raw());
    for dir in [std::path::PathBuf::from("/run/softdpu-lab"), std::env::temp_dir().join(user)] {
        assert!(!dir.join("file").exists(), "{}", dir.display());
    }
    status
}
