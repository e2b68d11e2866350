//! The three processes of a daemon: the supervisor starts the device and the controller and watches both.

pub mod controller;
pub mod device;
pub mod fixed;
pub mod supervisor;

use crate::failure::{Failure, Result};
use model::Config;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Locks that the processes hold in the run directory.
pub const SUPERVISOR_LOCK: &str = "supervisor.lock";
/// The device's.
pub const DEVICE_LOCK: &str = "device.lock";
/// The controller's.
pub const CONTROLLER_LOCK: &str = "controller.lock";

/// Reads a configuration, or prints every error in it.
pub fn load(path: &Path) -> Result<Config> {
    Config::load(path).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::usage(lines.join("\n"))
    })
}

/// A flag that SIGINT and SIGTERM set.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone()).map_err(Failure::new)?;
    }
    Ok(flag)
}
