//! What can go wrong in a laboratory, each in one line that says what to do.

use std::io;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A name that can't be a laboratory's or a host's.
    #[error("`{0}` is not a usable name: use 1 to 32 of a-z, 0-9, `-` and `_`")]
    BadName(String),
    /// [`crate::enter`] was called with more than one thread running.
    #[error("a laboratory must be entered before any thread is started ({0} threads are running)")]
    Threads(usize),
    /// The system refuses namespaces to this user.
    #[error("this system does not let you make namespaces ({cause}): {hint}")]
    NamespacesForbidden {
        /// The kernel's answer.
        cause: String,
        /// The setting that blocks, where one was recognised, and the way out.
        hint: String,
    },
    /// Another process keeps a laboratory of this name for this user.
    #[error("a laboratory named `{0}` is already running: end it, or choose another name")]
    AlreadyRunning(String),
    /// A step of the laboratory's construction failed.
    #[error("could not {step}: {cause}")]
    Setup {
        /// What was being done.
        step: String,
        /// The kernel's answer.
        cause: String,
    },
    /// No laboratory answers.
    #[error("no laboratory {} is running: start one with `softdpu lab run DIR --keep`", named(.0))]
    NotRunning(Option<String>),
    /// Several laboratories run and none was named.
    #[error("several laboratories are running, name one of: {}", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// No host of that name.
    #[error("no host `{host}` in laboratory `{lab}`{}; its hosts: {}", hint(.nearest), .hosts.join(", "))]
    UnknownHost {
        /// The name asked for.
        host: String,
        /// The laboratory.
        lab: String,
        /// The closest existing name, if one is close.
        nearest: Option<String>,
        /// All hosts.
        hosts: Vec<String>,
    },
    /// A host of that name exists already.
    #[error("host `{0}` exists already")]
    HostExists(String),
    /// A change of interfaces, addresses or routes was refused.
    #[error("could not {what}: {source}")]
    Netlink {
        /// What was being done, with the interface's name.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A sysctl could not be set.
    #[error("could not set sysctl {name} to {value}: {source}")]
    Sysctl {
        /// Its dotted path below `net`.
        name: String,
        /// The value that was refused.
        value: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Traffic could not be set up: an address not there, a port taken, no such interface.
    #[error("could not {what}: {source}")]
    Traffic {
        /// What was being done, with addresses.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A laboratory's description is wrong; one line each, with file, line and column.
    #[error("{0}")]
    Topology(String),
    /// The daemon in the laboratory did not do what it was asked for.
    #[error("the daemon {what}: {cause}")]
    Daemon {
        /// What it did not do.
        what: String,
        /// What it said, or its log.
        cause: String,
    },
    /// The user asked the laboratory to end.
    #[error("stopped")]
    Stopped,
    /// TAP interfaces can't be made here.
    #[error("no TAP interfaces here (/dev/net/tun: {0}): veth and AF_PACKET ports are used instead")]
    NoTap(io::Error),
}

impl LabError {
    /// For `map_err`: the failure of the step `step`.
    pub(crate) fn setup<E: std::fmt::Display>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |cause| Self::Setup { step, cause: cause.to_string() }
    }

    /// For `map_err`: traffic could not `what`.
    pub(crate) fn traffic<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |source| Self::Traffic { what, source: source.into() }
    }

    /// For `map_err`: netlink refused `what`.
    pub(crate) fn netlink(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Netlink { what, source }
    }
}

fn named(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |n| format!("named `{n}`"))
}

fn hint(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |n| format!(" (did you mean `{n}`?)"))
}
