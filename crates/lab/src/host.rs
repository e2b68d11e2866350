//! Hosts: network namespaces held by a descriptor, and the way to run code in them.

use crate::error::LabError;
use crate::namespace;
use crate::netlink::Netlink;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A host: a network namespace of its own. Clones are the same host; it ends with the last.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    namespace: OwnedFd,
}

impl Host {
    /// Makes a host. Most want [`crate::Lab::add_host`], which also lets `lab exec` find it.
    ///
    /// Loopback is up. IPv6 addresses are usable at once (no duplicate detection), and ICMP echo
    /// sockets are open to the laboratory's users.
    ///
    /// # Errors
    /// The namespace, a sysctl or loopback was refused.
    pub fn create(name: &str) -> Result<Self, LabError> {
        let make = || -> Result<OwnedFd, LabError> {
            namespace::unshare(UnshareFlags::NEWNET)
                .map_err(LabError::setup(format!("make the network namespace of {name}")))?;
            let file = File::open("/proc/thread-self/ns/net")
                .map_err(LabError::setup(format!("open the network namespace of {name}")))?;
            Ok(file.into())
        };
        let namespace = on_thread(name, make)??;
        Self::from_namespace(name.into(), namespace)
    }

    pub(crate) fn from_namespace(name: String, namespace: OwnedFd) -> Result<Self, LabError> {
        let host = Self(Arc::new(Inner { name, namespace }));
        for scope in ["all", "default"] {
            host.sysctl(&format!("ipv6.conf.{scope}.accept_dad"), "0")?;
        }
        host.sysctl("ipv4.ping_group_range", "0 0")?;
        host.netlink()?.set_up("lo")?;
        Ok(host)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs `f` on a thread of its own inside the host, and waits for it. Sockets that `f` opens
    /// stay in the host's namespace wherever they are used later.
    ///
    /// # Errors
    /// The thread could not start or join the namespace. A panic of `f` goes on in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        on_thread(self.name(), || self.join().map(|()| f()))?
    }

    /// Runs `f` on a thread of its own inside the host; the handle gives its result, or why the
    /// namespace could not be joined.
    ///
    /// # Errors
    /// The thread could not start.
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, LabError>>, LabError> {
        let host = self.clone();
        thread::Builder::new()
            .name(self.name().into())
            .spawn(move || host.join().map(|()| f()))
            .map_err(LabError::setup(format!("start a thread in {}", self.name())))
    }

    /// A netlink socket of this host, usable from any thread.
    ///
    /// # Errors
    /// The socket could not be made.
    pub fn netlink(&self) -> Result<Netlink, LabError> {
        self.run(Netlink::open)?
    }

    /// Sets a sysctl of this host; `name` is dotted and relative to `net`, such as
    /// `ipv6.conf.eth0.disable_ipv6`.
    ///
    /// # Errors
    /// [`LabError::Sysctl`].
    pub fn sysctl(&self, name: &str, value: &str) -> Result<(), LabError> {
        let path = format!("/proc/sys/net/{}", name.replace('.', "/"));
        self.run(|| fs::write(path, value))?.map_err(|source| LabError::Sysctl {
            name: name.into(),
            value: value.into(),
            source,
        })
    }

    /// Moves the calling thread into the host.
    fn join(&self) -> Result<(), LabError> {
        namespace::join(self, LinkNameSpaceType::Network)
            .map_err(LabError::setup(format!("join the network namespace of {}", self.name())))
    }
}

impl AsFd for Host {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.namespace.as_fd()
    }
}

fn on_thread<T: Send>(name: &str, f: impl FnOnce() -> T + Send) -> Result<T, LabError> {
    thread::scope(|scope| {
        let handle = thread::Builder::new()
            .name(name.into())
            .spawn_scoped(scope, f)
            .map_err(LabError::setup(format!("start a thread in {name}")))?;
        Ok(handle.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Whether TAP interfaces can be made: `/dev/net/tun` opens. If not, the error says so and what
/// is used instead, in one line.
///
/// # Errors
/// [`LabError::NoTap`].
pub fn tap_available() -> Result<(), LabError> {
    let opened = File::options().read(true).write(true).open("/dev/net/tun");
    opened.map(|_| ()).map_err(LabError::NoTap)
}
