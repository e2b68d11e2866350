//! Why a port cannot be opened.

use std::io;

/// Why a port cannot be opened: one line each, what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// No interface has this name.
    #[error("no such interface: {interface} (see `ip link`; a name has at most 15 bytes)")]
    NoSuchInterface {
        /// The interface.
        interface: String,
    },
    /// The kernel demands a privilege.
    #[error(
        "{interface}: not permitted to {action}: run as root, with CAP_NET_ADMIN and CAP_NET_RAW, or in a user namespace of your own"
    )]
    NoPrivilege {
        /// The interface.
        interface: String,
        /// What was tried.
        action: &'static str,
    },
    /// /dev/net/tun is missing or closed to this user.
    #[error(
        "{interface}: cannot open /dev/net/tun: {source}: load the tun module, or make the device accessible"
    )]
    NoTun {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else holds it.
    #[error(
        "{interface}: in use by another process or of another kind: stop that one, or choose another name"
    )]
    Busy {
        /// The interface.
        interface: String,
    },
    /// The interface has addresses, so that the host's stack would answer beside us.
    #[error(
        "{interface}: has address {address}: a port owns its interface; remove the address (`ip address flush dev {interface}`)"
    )]
    HasAddress {
        /// The interface.
        interface: String,
        /// The first address found.
        address: std::net::Ipv4Addr,
    },
    /// IPv6 could not be turned off.
    #[error(
        "{interface}: cannot turn IPv6 off, so the host's stack would answer beside us: {source}: write 1 to /proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
    )]
    Ipv6On {
        /// The interface.
        interface: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The interface's MTU is not the one asked for.
    #[error(
        "{interface}: its MTU is {actual}, the configuration says {wanted}: change one of them (`ip link set {interface} mtu {wanted}`)"
    )]
    MtuMismatch {
        /// The interface.
        interface: String,
        /// What the configuration says.
        wanted: u32,
        /// What the interface has.
        actual: u32,
    },
    /// No interface can have this MTU.
    #[error("port {port}: MTU {mtu} is not between 68 and 65535")]
    MtuInvalid {
        /// The port.
        port: String,
        /// What the configuration says.
        mtu: u32,
    },
    /// No port can have so many queues.
    #[error("port {port}: {queues} queues are not between 1 and 256")]
    QueuesInvalid {
        /// The port.
        port: String,
        /// What the configuration says.
        queues: u16,
    },
    /// The kernel lacks something that a port needs.
    #[error("{interface}: this kernel does not offer {feature}: {source}")]
    OffloadMissing {
        /// The interface.
        interface: String,
        /// What is missing.
        feature: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A memory port is made in code.
    #[error("port {port}: a memory port has no interface to open: it exists in tests and measurements only")]
    MemoryHasNoInterface {
        /// The port.
        port: String,
    },
    /// Anything else that the kernel says.
    #[error("{interface}: cannot {action}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl PortError {
    /// What a failed system call means.
    pub(crate) fn from_os(interface: &str, action: &'static str, source: io::Error) -> PortError {
        let interface = interface.to_owned();
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => PortError::NoSuchInterface { interface },
            Some(libc::EPERM | libc::EACCES) => PortError::NoPrivilege { interface, action },
            Some(libc::EBUSY) => PortError::Busy { interface },
            _ => PortError::System { interface, action, source },
        }
    }
}
