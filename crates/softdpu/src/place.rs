//! Where the daemon is: its run directory, its locks, and how to find a lab's.

use crate::args::Global;
use crate::failure::{Failure, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, geteuid};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The run directory that a command is about.
pub fn run_dir(global: &Global) -> Result<PathBuf> {
    if let Some(name) = &global.lab {
        let name = (!name.is_empty()).then_some(name.as_str());
        return lab::query(name).map(|info| info.run_dir).map_err(Failure::new);
    }
    Ok(global.run_dir.clone().unwrap_or_else(default_run_dir))
}

fn default_run_dir() -> PathBuf {
    if geteuid().is_root() {
        return "/run/softdpu".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("softdpu"),
        None => std::env::temp_dir().join(format!("softdpu-{}", geteuid().as_raw())),
    }
}

/// Where state is kept that survives a restart.
pub fn default_state_dir() -> PathBuf {
    if geteuid().is_root() {
        return "/var/lib/softdpu".into();
    }
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".local/state");
    std::env::var_os("XDG_STATE_HOME").map_or_else(home, PathBuf::from).join("softdpu")
}

/// Makes a directory with these rights, unless it is there.
pub fn make_directory(dir: &Path, mode: u32) -> Result {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(|e| Failure::new(format!("{}: cannot be made: {e}", dir.display())))
}

/// A file that a process holds locked while it lives, with its process id inside.
pub struct Lock(#[allow(dead_code, reason = "the lock lives as long as the file is open")] File);

impl Lock {
    /// Takes the lock, or tells who holds it.
    pub fn take(dir: &Path, name: &str) -> Result<Lock> {
        let path = dir.join(name);
        let failed = |e: std::io::Error| Failure::new(format!("{}: {e}", path.display()));
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let what = name.trim_end_matches(".lock");
            let holder =
                holder(dir, name).map_or(String::new(), |p| format!(" (process {})", p.as_raw_nonzero()));
            return Err(Failure::new(format!(
                "a {what} is running in {}{holder}; stop it with: softdpu stop --run-dir {}",
                dir.display(),
                dir.display()
            )));
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        write!(file, "{}\n{}\n", std::process::id(), pid_namespace()).map_err(failed)?;
        Ok(Lock(file))
    }
}

/// The process that holds a lock. `None` also if it lives in another pid namespace, where its number means another process.
pub fn holder(dir: &Path, name: &str) -> Option<Pid> {
    let mut file = File::open(dir.join(name)).ok()?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (pid, namespace) = text.trim().split_once('\n')?;
    if namespace != pid_namespace() {
        return None;
    }
    Pid::from_raw(pid.parse().ok()?)
}

/// The name of our pid namespace.
fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid").map_or(String::new(), |n| n.display().to_string())
}
