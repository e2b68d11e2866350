//! `softdpu lab`.

use crate::args::{Global, LabRunArgs};
use crate::failure::{Failure, Result};
use lab::LabError;
use lab::scenario::RunOptions;
use std::ffi::OsString;

/// `softdpu lab run`
pub fn run(args: &LabRunArgs) -> Result<u8> {
    let options = RunOptions { keep: args.keep, step: args.step, veth: args.veth };
    let status = lab::scenario::run(&args.directory, options).map_err(|e| match e {
        LabError::Topology(_) => Failure::usage(e),
        _ => Failure::new(e),
    })?;
    Ok(u8::try_from(status).unwrap_or(1))
}

/// `softdpu lab exec`
pub fn exec(global: &Global, host: &str, command: &[OsString]) -> Result<u8> {
    let name = global.lab.as_deref().filter(|name| !name.is_empty());
    let status = lab::exec(name, host, command).map_err(Failure::new)?;
    Ok(u8::try_from(status).unwrap_or(1))
}
