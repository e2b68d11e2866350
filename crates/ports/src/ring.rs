//! A packet socket with a receive ring of version 2 (Documentation/networking/packet_mmap.rst).
//!
//! In each slot virtio's header lies right before the frame, so that both can be sent on in one
//! piece. A slot has room for the largest super-frame.

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::tpacket2_hdr;
use packet::LARGE;

use crate::error::PortError;
use crate::sys;
use crate::vnet::VNET;

/// Bytes of a slot: the kernel's header, an address, alignment, virtio's header and the frame.
const SLOT: usize = (128 + VNET + LARGE).next_multiple_of(64);
/// Bytes of a block: what the kernel allocates in one piece. 31 slots fit and little is lost.
const BLOCK: usize = 2 << 20;
const PER_BLOCK: usize = BLOCK / SLOT;
const BLOCKS: usize = 8;
const SLOTS: usize = BLOCKS * PER_BLOCK;

/// A packet socket that receives into a ring and sends by `sendmmsg`.
pub(crate) struct Ring {
    fd: OwnedFd,
    memory: NonNull<u8>,
    /// The slot that the kernel fills next, or has filled.
    next: usize,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Ring {}

/// A frame in the ring.
pub(crate) struct Slot<'a> {
    /// Bits of the kernel: `TP_STATUS_...`.
    pub(crate) status: u32,
    /// The VLAN tag that the kernel took out of the frame: TPID and TCI.
    pub(crate) vlan: Option<(u16, u16)>,
    /// Bytes that the frame had; more than `packet` holds if it was cut.
    pub(crate) len: usize,
    /// Virtio's header, and the frame behind it.
    pub(crate) packet: &'a [u8],
}

impl Ring {
    /// Opens a socket on the interface `index` and asks for all frames that come in by it, whoever
    /// they are for, and none that go out.
    pub(crate) fn open(interface: &str, index: u32) -> Result<Ring, PortError> {
        let because = |action| move |e| PortError::from_os(interface, action, e);
        let need = |feature| {
            move |e: io::Error| match e.raw_os_error() {
                Some(libc::ENOPROTOOPT | libc::EINVAL) => {
                    PortError::OffloadMissing { interface: interface.to_owned(), feature, source: e }
                }
                _ => PortError::from_os(interface, "set up the packet socket", e),
            }
        };
        let set =
            |fd: &OwnedFd, name: c_int, value: c_int| sys::set_option(fd, libc::SOL_PACKET, name, value);

        // Protocol 0: nothing is received before all is set up and the interface is bound.
        let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(because("open a packet socket"))?;
        set(&fd, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as c_int)
            .map_err(need("receive rings of version 2"))?;
        set(&fd, libc::PACKET_VNET_HDR, 1).map_err(need("PACKET_VNET_HDR"))?;
        set(&fd, libc::PACKET_IGNORE_OUTGOING, 1).map_err(need("PACKET_IGNORE_OUTGOING"))?;
        let ring = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        sys::set_option(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, ring)
            .map_err(because("allocate the receive ring"))?;
        // More than the default where we are allowed to: a full send buffer is a drop.
        for name in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
            let _ = sys::set_option(&fd, libc::SOL_SOCKET, name, 4 << 20);
        }

        // SAFETY: a new shared mapping of the ring touches no memory of ours.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BLOCK * BLOCKS,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        let memory = match NonNull::new(memory.cast::<u8>()) {
            Some(start) if memory != libc::MAP_FAILED => start,
            _ => return Err(because("map the receive ring")(io::Error::last_os_error())),
        };
        let ring = Ring { fd, memory, next: 0 };

        let all = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(&ring.fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, all)
            .map_err(because("make the interface promiscuous"))?;
        ring.bind(index).map_err(because("bind to the interface"))?;
        Ok(ring)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let len = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: `address` lives through the call and its size is given.
        sys::check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
    }

    /// Joins the group `group` that shares an interface's frames by a hash of the connection, or
    /// founds one. Returns the group.
    pub(crate) fn join(&self, group: Option<u16>) -> io::Result<u16> {
        let new = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let kind = libc::PACKET_FANOUT_HASH | new;
        let argument = kind << 16 | u32::from(group.unwrap_or(0));
        sys::set_option(&self.fd, libc::SOL_PACKET, libc::PACKET_FANOUT, argument)?;
        // SAFETY: any bytes are an integer.
        let made: u32 = unsafe { sys::get_option(self.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT)? };
        Ok(made as u16)
    }

    fn header(&self, ahead: usize) -> *mut tpacket2_hdr {
        let slot = (self.next + ahead) % SLOTS;
        let offset = slot / PER_BLOCK * BLOCK + slot % PER_BLOCK * SLOT;
        // SAFETY: the offset of a slot lies inside the mapping.
        unsafe { self.memory.as_ptr().add(offset).cast() }
    }

    fn status(&self, ahead: usize) -> &AtomicU32 {
        // SAFETY: the status is an aligned word inside the mapping, shared with the kernel, and
        // touched by atomics only.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(ahead)).tp_status) }
    }

    /// The frame `ahead` places behind the first one that waits.
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> Option<Slot<'_>> {
        let status = self.status(ahead).load(Ordering::Acquire);
        if ahead >= SLOTS || status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header = self.header(ahead);
        // SAFETY: the status says that the slot is ours until `advance`, which needs `&mut
        // self`; the kernel has written the header, and at `tp_mac` a frame of `tp_snaplen` bytes
        // with virtio's header before it, all inside the slot.
        let (header, packet) = unsafe {
            let header = &*header;
            let start = usize::from(header.tp_mac) - VNET;
            let base = ptr::from_ref(header).cast::<u8>().add(start);
            let packet = std::slice::from_raw_parts(base, VNET + header.tp_snaplen as usize);
            (header, packet)
        };
        let vlan = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            (if known { header.tp_vlan_tpid } else { 0x8100 }, header.tp_vlan_tci)
        });
        Some(Slot { status, vlan, len: header.tp_len as usize, packet })
    }

    /// Gives the first `n` slots back to the kernel.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        for ahead in 0..n {
            self.status(ahead).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        }
        self.next = (self.next + n) % SLOTS;
    }

    /// Frames that the kernel dropped since the last call, because the ring was full or because
    /// virtio's header cannot describe them.
    pub(crate) fn kernel_drops(&self) -> u64 {
        // SAFETY: any bytes are a `tpacket_stats`.
        let stats = unsafe {
            sys::get_option::<libc::tpacket_stats>(self.fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)
        };
        stats.map_or(0, |stats| u64::from(stats.tp_drops))
    }

    /// Clears the error that the socket keeps after its interface went down, so that waiting works.
    pub(crate) fn clear_error(&self) {
        // SAFETY: any bytes are an integer.
        let _ = unsafe { sys::get_option::<c_int>(self.fd(), libc::SOL_SOCKET, libc::SO_ERROR) };
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and of this size; slots borrow from `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), BLOCK * BLOCKS) };
    }
}

/// Messages for `sendmmsg`, each of one piece: virtio's header and the frame.
pub(crate) struct Messages<const N: usize> {
    pieces: [libc::iovec; N],
    headers: [libc::mmsghdr; N],
    len: usize,
}

impl<const N: usize> Messages<N> {
    pub(crate) fn new() -> Self {
        // SAFETY: zeros are valid for both: null pointers and lengths of 0.
        unsafe { std::mem::zeroed() }
    }

    /// Adds a message; there is room for `N`.
    #[inline]
    pub(crate) fn push(&mut self, packet: &[u8]) {
        self.pieces[self.len] =
            libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        self.len += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Sends all, without waiting, and forgets them. For each that the kernel refuses `refused`
    /// gets its number and the error; true from it ends the sending.
    ///
    /// # Safety
    /// The memory of all messages pushed is still there and readable.
    pub(crate) unsafe fn send(&mut self, fd: BorrowedFd<'_>, mut refused: impl FnMut(usize, c_int) -> bool) {
        let len = std::mem::take(&mut self.len);
        for i in 0..len {
            self.headers[i].msg_hdr.msg_iov = &raw mut self.pieces[i];
            self.headers[i].msg_hdr.msg_iovlen = 1;
        }
        let mut done = 0;
        while done < len {
            // SAFETY: `done..len` are headers written above, over pieces in `self` and memory that
            // is there by contract; the kernel only reads it.
            let sent = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.headers.as_mut_ptr().add(done),
                    (len - done) as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            if sent > 0 {
                done += sent as usize;
                continue;
            }
            let error = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if error == libc::EINTR {
                continue;
            }
            if refused(done, error) {
                return;
            }
            done += 1;
        }
    }
}
