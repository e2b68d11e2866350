//! The few calls to the kernel that several ports need.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::mem::{size_of, zeroed};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::PortError;

/// What a system call returned, or why it failed.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket, closed on exec.
pub(crate) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; a descriptor that is returned is ours.
    unsafe {
        let fd = check(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets a socket option to a plain value.
pub(crate) fn set_option<T: Copy>(fd: &OwnedFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is given.
    check(unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), size_of::<T>() as u32)
    })
    .map(drop)
}

/// Reads a socket option that is a plain value.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    // SAFETY: `value` has room for the size given; by contract zeros and whatever the kernel
    // writes are a valid `T`.
    unsafe {
        let mut value: T = zeroed();
        let mut len = size_of::<T>() as u32;
        let pointer = (&raw mut value).cast();
        check(libc::getsockopt(fd.as_raw_fd(), level, name, pointer, &raw mut len))?;
        Ok(value)
    }
}

/// An interface by name, in the network namespace of the thread that made it.
pub(crate) struct Interface {
    name: String,
    socket: OwnedFd,
}

impl Interface {
    pub(crate) fn new(name: &str) -> Result<Interface, PortError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0']) {
            return Err(PortError::NoSuchInterface { interface: name.to_owned() });
        }
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)
            .map_err(|e| PortError::from_os(name, "open a socket", e))?;
        Ok(Interface { name: name.to_owned(), socket })
    }

    pub(crate) fn request(&self) -> libc::ifreq {
        // SAFETY: an `ifreq` of zeros is valid.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    /// Asks the kernel about the interface.
    fn ask(&self, what: c_ulong, action: &'static str) -> Result<libc::ifreq, PortError> {
        self.tell(what, self.request(), action)
    }

    fn tell(
        &self,
        what: c_ulong,
        mut request: libc::ifreq,
        action: &'static str,
    ) -> Result<libc::ifreq, PortError> {
        // SAFETY: these requests read and write one `ifreq`, which lives through the call.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), what as _, &raw mut request) })
            .map_err(|e| PortError::from_os(&self.name, action, e))?;
        Ok(request)
    }

    pub(crate) fn index(&self) -> Result<u32, PortError> {
        let request = self.ask(libc::SIOCGIFINDEX, "find the interface")?;
        // SAFETY: this request writes an integer.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    pub(crate) fn mac(&self) -> Result<[u8; 6], PortError> {
        let request = self.ask(libc::SIOCGIFHWADDR, "read the MAC address")?;
        // SAFETY: this request writes a `sockaddr`.
        let bytes = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        Ok(std::array::from_fn(|i| bytes[i] as u8))
    }

    pub(crate) fn mtu(&self) -> Result<u32, PortError> {
        let request = self.ask(libc::SIOCGIFMTU, "read the MTU")?;
        // SAFETY: this request writes an integer.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<(), PortError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu as c_int;
        self.tell(libc::SIOCSIFMTU, request, "set the MTU").map(drop)
    }

    /// The interface's first IPv4 address.
    pub(crate) fn ipv4(&self) -> Option<Ipv4Addr> {
        let request = self.ask(libc::SIOCGIFADDR, "read the address").ok()?;
        // SAFETY: this request writes a `sockaddr_in`: two bytes of port, then the address.
        let bytes = unsafe { request.ifr_ifru.ifru_addr }.sa_data;
        Some(Ipv4Addr::from(std::array::from_fn(|i| bytes[2 + i] as u8)))
    }
}
