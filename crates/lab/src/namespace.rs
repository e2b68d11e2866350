//! The kernel's interfaces that the laboratory needs and no safe wrapper covers: `fork`,
//! `unshare`, signals as a descriptor, and the addresses of packet sockets. All `unsafe` code of
//! this crate is here.

use rustix::process::Pid;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Which side of a `fork` this is.
pub(crate) enum Fork {
    /// The old process, with its child.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Threads of this process, from `/proc` (which must be that of its own pid namespace).
pub(crate) fn thread_count() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}

/// Forks. Refused while other threads run, for the child would inherit their locks held.
pub(crate) fn fork() -> io::Result<Fork> {
    if thread_count()? != 1 {
        return Err(io::Error::other("other threads are running"));
    }
    // SAFETY: this is the only thread, so no lock or half-done change can be copied into the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).map(Fork::Parent).ok_or_else(|| io::Error::other("pid 0")),
    }
}

/// Moves the calling thread into new namespaces of the kinds given.
pub(crate) fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    assert!(!namespaces.contains(UnshareFlags::FILES), "descriptors must stay shared");
    // SAFETY: the descriptor table is not unshared (checked above), the one hazard of this call.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Moves the calling thread into the namespace that `fd` refers to.
pub(crate) fn join(fd: impl AsFd, kind: LinkNameSpaceType) -> rustix::io::Result<()> {
    rustix::thread::move_into_link_name_space(fd.as_fd(), Some(kind))
}

/// SIGINT, SIGTERM and SIGHUP, blocked and read from a descriptor while this lives.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals for this thread.
    pub(crate) fn take() -> io::Result<Self> {
        // SAFETY: plain C data for which all zeros is valid, initialised by the calls below; the
        // pointers live through each call.
        unsafe {
            let mut set: libc::sigset_t = mem::zeroed();
            let mut before: libc::sigset_t = mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = OwnedFd::from_raw_fd(fd);
            match libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before) {
                0 => Ok(Self { fd, before }),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// The number of the next signal that came, if any.
    pub(crate) fn next(&self) -> Option<i32> {
        let mut info = [0; mem::size_of::<libc::signalfd_siginfo>()];
        let n = rustix::io::read(&self.fd, &mut info).ok()?;
        // `ssi_signo` is the record's first field.
        let number = info.get(..4).filter(|_| n >= 4)?.try_into().ok()?;
        Some(i32::from_ne_bytes(number))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by `pthread_sigmask` in `take`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Ends the process at once, without its exit handlers or buffered output.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: always sound; skips exit handlers on purpose.
    unsafe { libc::_exit(status) }
}

/// Makes SIGINT and SIGQUIT pass over this process while it waits for a foreground child.
pub(crate) fn ignore_interrupts() {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: SIG_IGN runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Frames and drops at a packet socket since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketCounts {
    /// Frames that the socket was offered, dropped ones included.
    pub(crate) frames: u64,
    /// Frames lost for want of buffer space.
    pub(crate) drops: u64,
}

/// A received frame's length and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// Bytes of the frame on the wire; more than the buffer holds if it was cut.
    pub(crate) len: usize,
    /// Whether this host sent the frame.
    pub(crate) outgoing: bool,
}

/// A non-blocking `AF_PACKET` socket on one interface of the calling thread's network namespace.
#[derive(Debug)]
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens it on the interface of index `index`; `receive` selects all frames, else none.
    pub(crate) fn open(index: u32, receive: bool) -> io::Result<Self> {
        let protocol = if receive { (libc::ETH_P_ALL as u16).to_be() } else { 0 };
        // SAFETY: no pointers; the result is checked before it becomes an owned descriptor. The
        // protocol stays 0 until `bind`, so that no frame of another interface gets in.
        let fd = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            match libc::socket(libc::AF_PACKET, kind, 0) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        // SAFETY: `sockaddr_ll` is plain C data for which all zeros is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        let len = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address is a `sockaddr_ll` of that length and lives through the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) };
        if result == 0 { Ok(Self(fd)) } else { Err(io::Error::last_os_error()) }
    }

    /// Receives one frame, cut to `buffer`; `None` when none is waiting.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Received>> {
        // SAFETY: `sockaddr_ll` is plain C data for which all zeros is valid.
        let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut from_len = mem::size_of_val(&from) as libc::socklen_t;
        // SAFETY: buffer, address and its length are valid for writes of the sizes passed.
        let n = unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_TRUNC,
                (&raw mut from).cast(),
                &mut from_len,
            )
        };
        if n >= 0 {
            let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
            return Ok(Some(Received { len: n as usize, outgoing }));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }

    /// Frames and drops since the last call (the kernel resets both at each reading).
    pub(crate) fn take_counts(&self) -> io::Result<PacketCounts> {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut len = mem::size_of_val(&stats) as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `stats`, plain C data of that length.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut len,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(PacketCounts { frames: stats.tp_packets.into(), drops: stats.tp_drops.into() })
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
