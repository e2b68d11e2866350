//! Running programs in the hosts of a laboratory from outside it.

use crate::error::LabError;
use crate::lab::{self, LabInfo};
use crate::namespace::{self, Fork};
use rustix::process::{self, Signal, WaitOptions};
use rustix::thread::LinkNameSpaceType;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Names of this user's running laboratories.
///
/// # Errors
/// `/proc` can't be read.
pub fn running() -> Result<Vec<String>, LabError> {
    let table = fs::read_to_string("/proc/net/unix")
        .map_err(LabError::setup("look for laboratories in /proc/net/unix"))?;
    let prefix = format!("@{}", lab::address_prefix());
    let mut names: Vec<String> = table
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix(&prefix))
        .map(String::from)
        .collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// Asks a running laboratory about itself; without a name, the only one that runs.
///
/// # Errors
/// None runs, or several and none was named; it does not answer within 2 s.
pub fn query(name: Option<&str>) -> Result<LabInfo, LabError> {
    let name = match name {
        Some(name) => name.to_string(),
        None => {
            let mut names = running()?;
            match names.len() {
                0 => return Err(LabError::NotRunning(None)),
                1 => names.remove(0),
                _ => return Err(LabError::Ambiguous(names)),
            }
        }
    };
    lab::check_name(&name)?;
    let asking = || LabError::setup(format!("ask laboratory {name}"));
    let stream = UnixStream::connect_addr(&lab::address(&name)?).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused => LabError::NotRunning(Some(name.clone())),
        _ => asking()(e),
    })?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).map_err(asking())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(asking())?;
    serde_json::from_str(&line).map_err(LabError::setup(format!("understand laboratory {name}")))
}

/// Runs a program in a host of a laboratory (without a name, the only one that runs), on this
/// terminal and in this directory, and gives its exit status: 128 + s if signal `s` killed it,
/// 127 if it was not found, 126 if it could not be started.
///
/// The program dies with the caller. The caller must be single-threaded; the call leaves it in
/// the host's namespaces, so it should end soon after.
///
/// # Errors
/// As [`query`]; an unknown host; a namespace that can't be joined.
pub fn exec(lab: Option<&str>, host: &str, command: &[OsString]) -> Result<i32, LabError> {
    let info = query(lab)?;
    let Some(net) = info.hosts.get(host) else {
        return Err(lab::unknown_host(host, &info.name, info.hosts.keys().cloned()));
    };
    let Some((program, arguments)) = command.split_first() else {
        return Err(LabError::setup("run a command in the host")("no command was given"));
    };
    let threads = namespace::thread_count().map_err(LabError::setup("read /proc/self/task"))?;
    if threads != 1 {
        return Err(LabError::Threads(threads));
    }
    let open = |path: &Path| {
        File::open(path).map_err(LabError::setup(format!("open the namespace {}", path.display())))
    };
    let of_init = |kind: &str| format!("/proc/{}/ns/{kind}", info.init_pid);
    let joining = |kind: &str| LabError::setup(format!("join the {kind} namespace of {host}"));
    // All are opened before the first is joined: then this /proc still shows them.
    let user = open(Path::new(&of_init("user")))?;
    let pid = open(Path::new(&of_init("pid")))?;
    let mount = open(Path::new(&of_init("mnt")))?;
    let net = open(net)?;
    let directory = std::env::current_dir().ok();
    if !same_file(&user, Path::new("/proc/self/ns/user")) {
        namespace::join(&user, LinkNameSpaceType::User).map_err(joining("user"))?;
    }
    namespace::join(&net, LinkNameSpaceType::Network).map_err(joining("network"))?;
    namespace::join(&pid, LinkNameSpaceType::ProcessID).map_err(joining("pid"))?;
    match namespace::fork().map_err(LabError::setup("fork"))? {
        Fork::Parent(child) => {
            namespace::ignore_interrupts();
            loop {
                match process::waitpid(Some(child), WaitOptions::empty()) {
                    Ok(Some((_, status))) => {
                        let signal = status.terminating_signal().map(|n| 128 + n);
                        return Ok(status.exit_status().or(signal).unwrap_or(1));
                    }
                    Ok(None) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(LabError::setup("wait for the command")(e)),
                }
            }
        }
        Fork::Child => {
            let _ = process::set_parent_process_death_signal(Some(Signal::KILL));
            if let Err(e) = namespace::join(&mount, LinkNameSpaceType::Mount) {
                eprintln!("{}", joining("mount")(e));
                namespace::exit_now(126);
            }
            // The join moved this process to the namespace's root.
            if let Some(directory) = directory {
                let _ = std::env::set_current_dir(directory);
            }
            let error = Command::new(program).args(arguments).exec();
            eprintln!("{}: {error}", Path::new(program).display());
            namespace::exit_now(if error.kind() == ErrorKind::NotFound { 127 } else { 126 });
        }
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}
