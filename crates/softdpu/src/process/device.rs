//! The device's process: opens the ports of the configuration and runs the device on them.

use crate::failure::{Failure, Result};
use crate::place::Lock;
use crate::process::{DEVICE_LOCK, load, stop_flag};
use device::run::Placement;
use device::{Config, PortDescription};
use model::{Desired, PortKind, Profile};
use ports::PortSpec;
use std::hash::{BuildHasher, RandomState};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// Runs the device until it is told to stop.
pub fn main(config: &Path, run_dir: &Path) -> Result {
    let config = load(config)?;
    let _lock = Lock::take(run_dir, DEVICE_LOCK)?;
    let stop = stop_flag()?;
    let _claims = claim(&config.desired)?;
    let (device, workers, host_paths) = open(&config.desired, &config.profile)?;
    let placement = placement(config.desired.device.workers as usize);
    device::run::run(device, workers, host_paths, run_dir, &placement, &stop, || {}).map_err(Failure::new)
}

/// Claims the interfaces of packet sockets: two devices on one would both forward every frame. An abstract socket belongs to one
/// network namespace, as the interface does, and goes with its process.
fn claim(desired: &Desired) -> Result<Vec<UnixListener>> {
    let ports = desired.ports.iter().filter(|port| port.kind == PortKind::AfPacket);
    ports
        .map(|port| {
            let name = format!("softdpu/interface/{}", port.interface);
            let address = SocketAddr::from_abstract_name(name).map_err(Failure::new)?;
            UnixListener::bind_addr(&address).map_err(|e| match e.kind() {
                ErrorKind::AddrInUse => Failure::new(format!(
                    "port {}: another device has the interface {}; stop that one first",
                    port.name, port.interface
                )),
                _ => Failure::new(format!("port {}: {e}", port.name)),
            })
        })
        .collect()
}

type Built = (device::SoftDevice, Vec<device::Worker>, Vec<device::HostPath>);

/// Opens every port, then builds the device on them.
fn open(desired: &Desired, profile: &Profile) -> Result<Built> {
    let workers = desired.device.workers;
    let (mut descriptions, mut queues) = (Vec::new(), Vec::new());
    for port in &desired.ports {
        let kind = match port.kind {
            PortKind::Tap => ports::PortKind::Tap,
            PortKind::AfPacket => ports::PortKind::AfPacket,
            PortKind::Memory => ports::PortKind::Memory,
        };
        let spec = PortSpec {
            name: port.name.clone(),
            kind,
            interface: port.interface.clone(),
            queues: workers,
            mtu: port.mtu,
        };
        let (info, opened) = ports::open(&spec).map_err(Failure::new)?;
        descriptions.push(PortDescription {
            name: info.name,
            kind: kind.code().into(),
            interface: info.interface,
            mtu: info.mtu,
        });
        queues.push(opened);
    }
    let mut config = Config::new(profile.clone(), descriptions);
    config.workers = workers as usize;
    config.miss_policy = desired.device.miss_policy;
    config.reset_policy = desired.device.reset_policy;
    config.seed = RandomState::new().hash_one(std::process::id());
    device::build(config, queues).map_err(|e| Failure::new(format!("the device cannot have its memory: {e}")))
}

/// Workers on CPUs of their own, host paths on the others, where there are enough; else as the kernel likes.
fn placement(workers: usize) -> Placement {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 * workers + 1 {
        return Placement::default();
    }
    Placement { workers: (0..workers).collect(), host_paths: (workers..2 * workers).collect() }
}
