//! The inside of a laboratory as its body sees it, and what it tells the outside.

use crate::error::LabError;
use crate::host::Host;
use crate::stop::Stop;
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The name of the host in which the body itself runs: the place of the device.
pub const DPU: &str = "dpu";

/// Longest report from the inside to the keeper, in bytes.
pub(crate) const MAX_REPORT: usize = 32 * 1024;

/// A laboratory, seen from its body. Hosts live as long as it.
#[derive(Debug)]
pub struct Lab {
    name: String,
    run_dir: PathBuf,
    stop: Stop,
    keeper: OwnedFd,
    hosts: BTreeMap<String, Host>,
}

/// What a running laboratory answers to those outside, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabInfo {
    /// Its name.
    pub name: String,
    /// Pid 1 of its pid namespace, as the outside sees it.
    pub init_pid: i32,
    /// Whether it has a user namespace, to be joined first.
    pub user_namespace: bool,
    /// Its run directory, by a path that the outside can open.
    pub run_dir: PathBuf,
    /// Network namespaces by host, each a path to open and join.
    pub hosts: BTreeMap<String, PathBuf>,
}

/// What the inside tells the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Construction failed.
    Failed {
        /// What was being done.
        step: String,
        /// Why it failed.
        cause: String,
    },
    /// It stands; sent anew with each new host. Hosts are descriptors of the sender.
    Ready {
        /// The run directory inside.
        run_dir: PathBuf,
        /// Namespace descriptors by host name.
        hosts: BTreeMap<String, RawFd>,
    },
}

impl Lab {
    pub(crate) fn new(name: String, run_dir: PathBuf, stop: Stop, keeper: OwnedFd) -> Result<Self, LabError> {
        let own =
            File::open("/proc/thread-self/ns/net").map_err(LabError::setup("open the network namespace"))?;
        let dpu = Host::from_namespace(DPU.into(), own.into())?;
        let hosts = BTreeMap::from([(DPU.into(), dpu)]);
        let lab = Self { name, run_dir, stop, keeper, hosts };
        lab.report()?;
        Ok(lab)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A private tmpfs for sockets and files; it vanishes with the laboratory.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Raised when the user asks the laboratory to end. The body should then return.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Makes a host: a network namespace of its own, loopback up, no other interface.
    ///
    /// # Errors
    /// A bad or taken name; a namespace refused (the system's limit of namespaces).
    pub fn add_host(&mut self, name: &str) -> Result<Host, LabError> {
        check_name(name)?;
        if self.hosts.contains_key(name) {
            return Err(LabError::HostExists(name.into()));
        }
        let host = Host::create(name)?;
        self.hosts.insert(name.into(), host.clone());
        self.report()?;
        Ok(host)
    }

    /// The host of that name; [`DPU`] is the body's own.
    ///
    /// # Errors
    /// [`LabError::UnknownHost`], with the nearest name.
    pub fn host(&self, name: &str) -> Result<&Host, LabError> {
        self.hosts.get(name).ok_or_else(|| unknown_host(name, &self.name, self.hosts.keys().cloned()))
    }

    /// The host in which the body itself runs.
    pub fn dpu(&self) -> Result<&Host, LabError> {
        self.host(DPU)
    }

    /// All hosts, by name.
    pub fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.hosts.values()
    }

    fn report(&self) -> Result<(), LabError> {
        let fd = |h: &Host| h.as_fd().as_raw_fd();
        let hosts = self.hosts.iter().map(|(name, h)| (name.clone(), fd(h))).collect();
        send(&self.keeper, &Report::Ready { run_dir: self.run_dir.clone(), hosts })
    }
}

pub(crate) fn send(keeper: &OwnedFd, report: &Report) -> Result<(), LabError> {
    let text = serde_json::to_vec(report).map_err(LabError::setup("write the report"))?;
    if text.len() > MAX_REPORT {
        return Err(LabError::setup("report the hosts to the keeper")("too many hosts"));
    }
    rustix::net::send(keeper, &text, SendFlags::NOSIGNAL)
        .map(|_| ())
        .map_err(LabError::setup("report to the keeper"))
}

/// Refuses names that would not do in socket names and messages.
pub(crate) fn check_name(name: &str) -> Result<(), LabError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if (1..=32).contains(&name.len()) && name.chars().all(good) {
        Ok(())
    } else {
        Err(LabError::BadName(name.into()))
    }
}

/// What all laboratories' socket names of this user begin with (without the leading NUL).
pub(crate) fn address_prefix() -> String {
    format!("softdpu-lab-{}-", rustix::process::geteuid().as_raw())
}

/// The abstract socket address of a laboratory of this user.
pub(crate) fn address(name: &str) -> Result<SocketAddr, LabError> {
    SocketAddr::from_abstract_name(format!("{}{name}", address_prefix()))
        .map_err(LabError::setup("name the laboratory's socket"))
}

/// The error for a host that is not there, with the nearest that is.
pub(crate) fn unknown_host(host: &str, lab: &str, hosts: impl Iterator<Item = String>) -> LabError {
    let hosts: Vec<String> = hosts.collect();
    let nearest = hosts
        .iter()
        .map(|h| (strsim::damerau_levenshtein(h, host), h))
        .min()
        .filter(|(distance, _)| *distance <= 2.max(host.len() / 3))
        .map(|(_, h)| h.clone());
    LabError::UnknownHost { host: host.into(), lab: lab.into(), nearest, hosts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, good) in [
            ("blue-1", true),
            ("a", true),
            ("", false),
            ("Blue", false),
            ("a/b", false),
            ("a b", false),
            (&"x".repeat(32), true),
            (&"x".repeat(33), false),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
    }

    #[test]
    fn an_unknown_host_names_the_nearest() {
        let hosts = || ["blue-1", "blue-2", "red-1"].map(String::from).into_iter();
        let text = unknown_host("bleu-2", "demo", hosts()).to_string();
        assert_eq!(
            text,
            "no host `bleu-2` in laboratory `demo` (did you mean `blue-2`?); its hosts: blue-1, blue-2, red-1"
        );
        let text = unknown_host("printer", "demo", hosts()).to_string();
        assert_eq!(text, "no host `printer` in laboratory `demo`; its hosts: blue-1, blue-2, red-1");
    }
}
