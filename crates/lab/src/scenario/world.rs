//! What the steps of a scenario share: the hosts, the daemon and its wires, and the accounts of earlier daemons.

use super::out::Out;
use crate::daemon::{Daemon, PortCounts, PortKinds, Wires};
use crate::error::LabError;
use crate::host::Host;
use crate::lab::Lab;
use crate::topology::{HostPlan, Topology};
use contract::report::{DropReport, PointReport, Status};
use model::Desired;
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Hosts, daemon and output of a running scenario.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) lab: Lab,
    pub(crate) topology: Topology,
    pub(crate) out: Out,
    kinds: PortKinds,
    hosts: Vec<(Host, HostPlan)>,
    life: Option<Life>,
    /// Accounts of the daemons that have ended.
    pub(crate) accounts: Vec<Account>,
    lives: usize,
    files: usize,
}

/// One daemon, from its start to its end.
#[derive(Debug)]
struct Life {
    label: String,
    device: Desired,
    daemon: Daemon,
    wires: Wires,
}

/// How a daemon's account stood when all traffic had stopped.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) label: String,
    pub(crate) status: Status,
    pub(crate) points: Vec<PointReport>,
    pub(crate) drops: Vec<DropReport>,
    /// By port name.
    pub(crate) ports: Vec<(String, PortCounts)>,
    /// Whether the counters had come to rest.
    pub(crate) still: bool,
}

impl World {
    /// Makes the hosts; no daemon runs yet.
    pub(crate) fn new(mut lab: Lab, topology: Topology, veth: bool) -> Result<World, LabError> {
        let out = Out::new();
        let (kinds, why) = PortKinds::choose(&topology.device, veth);
        let ports = match kinds {
            PortKinds::AsConfigured => "the ports are as the device's configuration says",
            PortKinds::Veth => "the ports are packet sockets on veth pairs",
        };
        out.say(format!("Laboratory {}: hosts {}; {ports}", topology.name, names(&topology)));
        if let Some(why) = why {
            out.say(why);
        }
        let mut hosts = Vec::new();
        for plan in &topology.hosts {
            hosts.push((lab.add_host(&plan.name)?, plan.clone()));
        }
        Ok(World { lab, topology, out, kinds, hosts, life: None, accounts: Vec::new(), lives: 0, files: 0 })
    }

    /// A host.
    pub(crate) fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.lab.host(name)
    }

    /// A host's plan.
    pub(crate) fn plan(&self, name: &str) -> Result<&HostPlan, LabError> {
        // An unknown name gives the laboratory's own error.
        self.host(name)?;
        let plan = self.topology.hosts.iter().find(|p| p.name == name);
        plan.ok_or_else(|| LabError::Topology(format!("the scenario needs a host named {name}")))
    }

    /// A host's first IPv4 or IPv6 address.
    pub(crate) fn address(&self, host: &str, v6: bool) -> Result<IpAddr, LabError> {
        let found = self.plan(host)?.addresses.iter().map(|(a, _)| *a).find(|a| a.is_ipv6() == v6);
        let version = if v6 { "IPv6" } else { "IPv4" };
        found.ok_or_else(|| {
            LabError::Topology(format!("the scenario needs an {version} address of host {host}"))
        })
    }

    fn life(&self) -> Result<&Life, LabError> {
        self.life.as_ref().ok_or_else(|| LabError::Daemon {
            what: "does not run".into(),
            cause: "an earlier step failed".into(),
        })
    }

    /// The daemon.
    pub(crate) fn daemon(&self) -> Result<&Daemon, LabError> {
        Ok(&self.life()?.daemon)
    }

    /// The configuration that was last started or applied.
    pub(crate) fn device(&self) -> Result<&Desired, LabError> {
        Ok(&self.life()?.device)
    }

    /// Ends the present daemon, keeping its account, and starts one with this configuration and an empty state. Returns once all
    /// its rules are confirmed, with the time from its first answer to that.
    pub(crate) fn start(&mut self, label: &str, device: &Desired) -> Result<Duration, LabError> {
        self.end()?;
        self.lives += 1;
        let state = self.lab.run_dir().join(format!("state-{}", self.lives));
        let device = self.kinds.rewrite(device);
        let file = self.write(&device)?;
        let dpu = self.lab.dpu()?.clone();
        Wires::prepare(&dpu, &self.hosts, self.kinds)?;
        let daemon = Daemon::start(self.lab.run_dir(), &file, &state, self.lab.stop())?;
        let up = Instant::now();
        daemon.wait_settled(self.lab.stop())?;
        let install = up.elapsed();
        let wires = Wires::attach(&dpu, &self.hosts, self.kinds, &|| counts(&daemon))?;
        self.life = Some(Life { label: label.into(), device, daemon, wires });
        Ok(install)
    }

    /// Starts a daemon with the laboratory's own configuration, unless one runs with it.
    pub(crate) fn start_main(&mut self, label: &str) -> Result<(), LabError> {
        let main = self.kinds.rewrite(&self.topology.device);
        if self.life.as_ref().is_none_or(|life| life.device != main) {
            self.start(label, &main)?;
        }
        Ok(())
    }

    /// Makes a configuration the desired state of the running daemon.
    pub(crate) fn apply(&mut self, device: &Desired) -> Result<(), LabError> {
        let device = self.kinds.rewrite(device);
        let file = self.write(&device)?;
        let daemon = self.daemon()?;
        daemon.apply(text(&device)?, &file.display().to_string())?;
        daemon.wait_settled(self.lab.stop())?;
        if let Some(life) = &mut self.life {
            life.device = device;
        }
        Ok(())
    }

    /// Writes a configuration where the daemon reads it, and whoever looks around.
    fn write(&mut self, device: &Desired) -> Result<PathBuf, LabError> {
        self.files += 1;
        let file = self.lab.run_dir().join(format!("device-{}.toml", self.files));
        fs::write(&file, text(device)?).map_err(LabError::setup(format!("write {}", file.display())))?;
        Ok(file)
    }

    /// Ends the present daemon, if one runs, and keeps its account.
    fn end(&mut self) -> Result<(), LabError> {
        if self.life.is_some() {
            let account = self.account()?;
            self.accounts.push(account);
        }
        self.close()
    }

    /// Ends the present daemon, if one runs.
    pub(crate) fn close(&mut self) -> Result<(), LabError> {
        if let Some(Life { daemon, wires, .. }) = self.life.take() {
            daemon.stop()?;
            wires.remove()?;
        }
        Ok(())
    }

    /// The account of the present daemon, once its counters are at rest.
    pub(crate) fn account(&self) -> Result<Account, LabError> {
        let Life { label, daemon, wires, .. } = self.life()?;
        let (counts, still) = wires.counts(&|| counts(daemon))?;
        let ports = wires.iter().zip(counts).map(|(wire, c)| (wire.plan.port.clone(), c)).collect();
        Ok(Account {
            label: label.clone(),
            status: daemon.status()?,
            points: daemon.points()?,
            drops: daemon.drops()?,
            ports,
            still,
        })
    }

    /// Dropped frames by reason, at all points together.
    pub(crate) fn drops(&self) -> Result<Drops, LabError> {
        let mut sums = BTreeMap::new();
        for drop in self.daemon()?.drops()? {
            *sums.entry(drop.reason).or_default() += drop.frames;
        }
        Ok(Drops(sums))
    }

    /// Sleeps, unless the user asks to stop.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), LabError> {
        if self.lab.stop().wait(time) { Err(LabError::Stopped) } else { Ok(()) }
    }

    /// Waits until `done`, at most `limit`; whether it came to be.
    pub(crate) fn wait(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> Result<bool, LabError>,
    ) -> Result<bool, LabError> {
        let deadline = Instant::now() + limit;
        loop {
            if done()? {
                return Ok(true);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            self.sleep(Duration::from_millis(5))?;
        }
    }
}

/// Dropped frames by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drops(BTreeMap<String, u64>);

impl Drops {
    /// Frames dropped for a reason.
    pub(crate) fn of(&self, reason: &str) -> u64 {
        self.0.get(reason).copied().unwrap_or(0)
    }
}

fn counts(daemon: &Daemon) -> Result<Vec<(String, u64, u64)>, LabError> {
    Ok(daemon.ports()?.into_iter().map(|p| (p.name, p.rx_frames, p.tx_frames)).collect())
}

fn text(device: &Desired) -> Result<String, LabError> {
    toml::to_string(device).map_err(LabError::setup("write a configuration"))
}

fn names(topology: &Topology) -> String {
    let names: Vec<&str> = topology.hosts.iter().map(|h| h.name.as_str()).collect();
    names.join(", ")
}
