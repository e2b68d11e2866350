//! Between the device's ports and the hosts: TAPs moved into the hosts' namespaces, or veth pairs.

use crate::error::LabError;
use crate::host::{Host, tap_available};
use crate::netlink::{LinkStats, VethEnd};
use crate::topology::HostPlan;
use crate::traffic::{SniffCounts, Sniffer};
use model::{Desired, PortKind};
use std::time::Duration;

/// How long an interface may take to carry traffic.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two readings that must agree; longer than a sniffer's counts may lag.
const STILL: Duration = Duration::from_millis(60);
/// Readings until counters must have come to rest.
const READINGS: usize = 40;

/// What the device's ports are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKinds {
    /// As the configuration says.
    AsConfigured,
    /// Packet sockets on veth pairs, whatever the configuration says.
    Veth,
}

impl PortKinds {
    /// What can be had here. Where TAPs cannot, the second value says so in one line.
    pub fn choose(device: &Desired, veth: bool) -> (PortKinds, Option<String>) {
        if veth {
            return (PortKinds::Veth, None);
        }
        match tap_available() {
            Err(why) if device.ports.iter().any(|p| p.kind == PortKind::Tap) => {
                (PortKinds::Veth, Some(why.to_string()))
            }
            _ => (PortKinds::AsConfigured, None),
        }
    }

    /// The configuration for ports of this kind.
    pub fn rewrite(self, device: &Desired) -> Desired {
        let mut device = device.clone();
        if self == PortKinds::Veth {
            device.ports.iter_mut().for_each(|p| p.kind = PortKind::AfPacket);
        }
        device
    }
}

/// One host's interface and the port behind it.
#[derive(Debug)]
pub struct Wire {
    /// The host.
    pub host: Host,
    /// What it was made from.
    pub plan: HostPlan,
    sniffer: Sniffer,
    base: PortCounts,
}

/// What the host's side of a wire has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// The kernel's counters of the interface.
    pub kernel: LinkStats,
    /// The sniffer's on it.
    pub sniffed: SniffCounts,
    /// Frames that the device received from there.
    pub device_rx: u64,
    /// Frames that the device sent there.
    pub device_tx: u64,
}

/// All wires of one life of the daemon.
#[derive(Debug)]
pub struct Wires {
    wires: Vec<Wire>,
    veth: bool,
    dpu: Host,
}

/// Frames received and sent, by port name, as the device tells.
pub type DeviceCounts<'a> = dyn Fn() -> Result<Vec<(String, u64, u64)>, LabError> + 'a;

impl Wires {
    /// What must be there before the device opens its ports: for veth pairs, the pairs.
    ///
    /// # Errors
    /// An interface was refused.
    pub fn prepare(dpu: &Host, hosts: &[(Host, HostPlan)], kinds: PortKinds) -> Result<(), LabError> {
        if kinds != PortKinds::Veth {
            return Ok(());
        }
        let mut netlink = dpu.netlink()?;
        for (host, plan) in hosts {
            let name = plan.interface.as_str();
            let far = VethEnd { host, name, mac: Some(plan.mac), mtu: Some(plan.mtu) };
            netlink.add_veth(VethEnd { host: dpu, name, mac: None, mtu: Some(plan.mtu) }, far)?;
            // Without the host's side up there is no carrier, so that no frame passes before the device reads.
            dpu.sysctl(&format!("ipv6.conf.{name}.disable_ipv6"), "1")?;
            netlink.set_up(name)?;
        }
        Ok(())
    }

    /// Gives each host its interface, once the device has opened its ports, and takes the counters' first readings.
    ///
    /// # Errors
    /// An interface, address or route was refused.
    pub fn attach(
        dpu: &Host,
        hosts: &[(Host, HostPlan)],
        kinds: PortKinds,
        device: &DeviceCounts<'_>,
    ) -> Result<Wires, LabError> {
        let mut wires = Wires { wires: Vec::new(), veth: kinds == PortKinds::Veth, dpu: dpu.clone() };
        let mut outer = dpu.netlink()?;
        for (host, plan) in hosts {
            let name = plan.interface.as_str();
            let mut inner = host.netlink()?;
            if !wires.veth {
                outer.move_to(name, host, name)?;
                inner.set_mac(name, plan.mac)?;
                inner.set_mtu(name, plan.mtu)?;
            }
            // There are no routers here to ask.
            host.sysctl(&format!("ipv6.conf.{name}.router_solicitations"), "0")?;
            inner.set_up(name)?;
            for (address, prefix) in &plan.addresses {
                inner.add_address(name, *address, *prefix)?;
            }
            for gateway in &plan.gateways {
                let any: std::net::IpAddr = if gateway.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
                inner.add_route(any, 0, Some(*gateway), name)?;
            }
            inner.wait_running(name, PATIENCE)?;
            if wires.veth {
                outer.wait_running(name, PATIENCE)?;
            }
            let sniffer = Sniffer::start(host, name, |_| false)?;
            wires.wires.push(Wire {
                host: host.clone(),
                plan: plan.clone(),
                sniffer,
                base: PortCounts::default(),
            });
        }
        let (base, _) = wires.at_rest(device)?;
        wires.wires.iter_mut().zip(base).for_each(|(wire, base)| wire.base = base);
        Ok(wires)
    }

    /// Counts since the wires were attached, by wire, once they have come to rest; `false` if they never did.
    ///
    /// # Errors
    /// The device does not answer, or an interface is gone.
    pub fn counts(&self, device: &DeviceCounts<'_>) -> Result<(Vec<PortCounts>, bool), LabError> {
        let (now, still) = self.at_rest(device)?;
        Ok((self.wires.iter().zip(now).map(|(wire, now)| now.since(&wire.base)).collect(), still))
    }

    fn at_rest(&self, device: &DeviceCounts<'_>) -> Result<(Vec<PortCounts>, bool), LabError> {
        let mut before = self.read(device)?;
        for _ in 0..READINGS {
            std::thread::sleep(STILL);
            let now = self.read(device)?;
            if now == before {
                return Ok((now, true));
            }
            before = now;
        }
        Ok((before, false))
    }

    fn read(&self, device: &DeviceCounts<'_>) -> Result<Vec<PortCounts>, LabError> {
        let ports = device()?;
        let one = |wire: &Wire| {
            let port = ports.iter().find(|(name, ..)| *name == wire.plan.port);
            let (device_rx, device_tx) = port.map_or((0, 0), |(_, rx, tx)| (*rx, *tx));
            let kernel = wire.host.netlink()?.stats(&wire.plan.interface)?;
            Ok(PortCounts { kernel, sniffed: wire.sniffer.counts(), device_rx, device_tx })
        };
        self.wires.iter().map(one).collect()
    }

    /// The wires, in the order of the hosts.
    pub fn iter(&self) -> impl Iterator<Item = &Wire> {
        self.wires.iter()
    }

    /// Takes away what the device's end does not: TAPs end with it, veth pairs do not.
    ///
    /// # Errors
    /// An interface is gone already.
    pub fn remove(self) -> Result<(), LabError> {
        if self.veth {
            let mut netlink = self.dpu.netlink()?;
            for wire in &self.wires {
                netlink.delete(&wire.plan.interface)?;
            }
        }
        Ok(())
    }
}

impl PortCounts {
    fn since(&self, base: &PortCounts) -> PortCounts {
        let (k, b) = (&self.kernel, &base.kernel);
        let (s, t) = (&self.sniffed, &base.sniffed);
        PortCounts {
            kernel: LinkStats {
                rx_packets: k.rx_packets - b.rx_packets,
                tx_packets: k.tx_packets - b.tx_packets,
                rx_bytes: k.rx_bytes - b.rx_bytes,
                tx_bytes: k.tx_bytes - b.tx_bytes,
                rx_errors: k.rx_errors - b.rx_errors,
                tx_errors: k.tx_errors - b.tx_errors,
                rx_dropped: k.rx_dropped - b.rx_dropped,
                tx_dropped: k.tx_dropped - b.tx_dropped,
            },
            sniffed: SniffCounts {
                passed: s.passed - t.passed,
                incoming: s.incoming - t.incoming,
                outgoing: s.outgoing - t.outgoing,
                matched: s.matched - t.matched,
                drops: s.drops - t.drops,
            },
            device_rx: self.device_rx - base.device_rx,
            device_tx: self.device_tx - base.device_tx,
        }
    }
}
