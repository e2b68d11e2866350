//! `softdpu lab`.

use crate::args::{Global, LabRunArgs};
use crate::failure::{Failure, Result};
use std::ffi::OsString;

/// `softdpu lab run`
pub fn run(args: &LabRunArgs) -> Result<u8> {
    Err(Failure::new(format!("{}: no scenario", args.directory.display())))
}

/// `softdpu lab exec`
pub fn exec(global: &Global, host: &str, command: &[OsString]) -> Result<u8> {
    let name = global.lab.as_deref().filter(|name| !name.is_empty());
    let status = lab::exec(name, host, command).map_err(Failure::new)?;
    Ok(u8::try_from(status).unwrap_or(1))
}
