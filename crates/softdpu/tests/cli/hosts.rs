//! Two hosts on veth pairs, whose other ends are the device's ports: the interfaces stay when the device dies.

use crate::daemon::BASE;
use lab::{Host, Lab, VethEnd};
use std::time::Duration;

/// The hosts behind the ports `a` and `b`.
pub struct Hosts {
    pub a: Host,
    pub b: Host,
}

/// The configuration for these hosts.
pub fn config() -> String {
    BASE.replace("kind = \"tap\"", "kind = \"af_packet\"")
}

impl Hosts {
    pub fn new(lab: &mut Lab) -> Hosts {
        let a = Hosts::host(lab, "a", 1);
        let b = Hosts::host(lab, "b", 2);
        Hosts { a, b }
    }

    fn host(lab: &mut Lab, name: &str, number: u8) -> Host {
        let host = lab.add_host(&format!("host-{name}")).expect("host");
        let dpu = lab.dpu().expect("dpu");
        let mac = [2, 0, 0, 0, 0, 9 + number];
        let mut outer = dpu.netlink().expect("netlink");
        outer
            .add_veth(
                VethEnd { host: dpu, name, mac: None, mtu: None },
                VethEnd { host: &host, name: "eth0", mac: Some(mac), mtu: None },
            )
            .expect("veth");
        dpu.sysctl(&format!("ipv6.conf.{name}.disable_ipv6"), "1").expect("IPv6 off");
        outer.set_up(name).expect("up");
        let mut inner = host.netlink().expect("netlink");
        inner.add_address("eth0", [10, 0, 0, number].into(), 24).expect("address");
        let v6 = [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)];
        inner.add_address("eth0", v6.into(), 64).expect("address");
        inner.set_up("eth0").expect("up");
        inner.wait_running("eth0", Duration::from_secs(5)).expect("running");
        host
    }
}
