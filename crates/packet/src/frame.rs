//! One frame: an owned handle to one buffer of a pool.
//!
//! A buffer is `[Control 64 B][Meta 64 B][headroom 192 B][data]`, each part aligned to 64 bytes.

use core::fmt;
use core::ptr::{self, NonNull};
use core::slice;

use crate::ledger::Count;
use crate::meta::Meta;
use crate::pool::Home;

/// Bytes in front of a fresh frame's data, for headers to come.
pub const HEADROOM: usize = 192;
/// Bytes of data that a small frame has room for.
pub const SMALL: usize = 2048;
/// Bytes of data that a large frame has room for: the largest IP packet and 64 bytes of L2.
pub const LARGE: usize = 65_535 + 64;

/// Where data begins in a fresh buffer.
pub(crate) const DATA: usize = size_of::<Control>() + size_of::<Meta>() + HEADROOM;

/// The first cache line of a buffer: whose it is, and which part of it is in use.
#[repr(C, align(64))]
pub(crate) struct Control {
    /// The pool it belongs to.
    pub(crate) home: *const Home,
    /// The next one in a list of free buffers.
    pub(crate) next: *mut Control,
    /// Where data begins, in bytes from the start of the buffer.
    pub(crate) start: u32,
    /// Bytes of data.
    pub(crate) len: u32,
    /// Where the buffer ends, in bytes from its start.
    pub(crate) end: u32,
}

/// An owned frame: one pointer wide. It must end in [`Pool::free`](crate::Pool::free) or
/// [`release`](Frame::release). One that is merely dropped goes home as well, but is counted as a
/// stray, and is a panic in debug builds.
pub struct Frame(NonNull<Control>);

// SAFETY: a frame is the only handle to its buffer, and the way home is an atomic list.
unsafe impl Send for Frame {}

impl Frame {
    /// Makes the handle to a buffer.
    ///
    /// # Safety
    /// `control` is an initialised `Control` at the start of a buffer of `end` bytes that belongs to
    /// `home`; the mapping and `home` live until the buffer is back in it; no other handle exists.
    pub(crate) unsafe fn from_control(control: NonNull<Control>) -> Frame {
        Frame(control)
    }

    /// The buffer, and with it the duty to send it home.
    pub(crate) fn into_control(self) -> NonNull<Control> {
        let control = self.0;
        core::mem::forget(self);
        control
    }

    #[inline]
    pub(crate) fn control(&self) -> &Control {
        // SAFETY: by `from_control` the pointer is valid and ours alone while `self` lives.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn control_mut(&mut self) -> &mut Control {
        // SAFETY: as in `control`, and `self` is borrowed mutably.
        unsafe { self.0.as_mut() }
    }

    /// The byte at `offset` of the buffer.
    #[inline]
    fn at(&self, offset: u32) -> *mut u8 {
        // SAFETY: callers pass `start`, which lies between the end of `Meta` and `end`.
        unsafe { self.0.as_ptr().cast::<u8>().add(offset as usize) }
    }

    /// The bytes, from the Ethernet header on.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let control = self.control();
        // SAFETY: `start + len <= end` is held by all that change them, the memory comes
        // zeroed from the kernel, and it is apart from `Control` and `Meta`.
        unsafe { slice::from_raw_parts(self.at(control.start), control.len as usize) }
    }

    /// The bytes, from the Ethernet header on.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.control().start, self.control().len as usize);
        // SAFETY: as in `data`, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.at(start), len) }
    }

    /// Bytes of data.
    #[inline]
    pub fn len(&self) -> usize {
        self.control().len as usize
    }

    /// Whether there is no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest length possible without moving the start of the data.
    #[inline]
    pub fn capacity(&self) -> usize {
        let control = self.control();
        (control.end - control.start) as usize
    }

    /// Bytes free in front of the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.control().start as usize - (DATA - HEADROOM)
    }

    /// Cuts or grows at the end. Bytes won by growing are whatever the buffer held before.
    ///
    /// # Panics
    /// If `len` is above [`capacity`](Frame::capacity): a bug of the caller.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "length {len} above capacity {}", self.capacity());
        self.control_mut().len = len as u32;
    }

    /// Grows by `n` bytes at the front and returns them, to be written.
    ///
    /// # Panics
    /// If `n` is above [`headroom`](Frame::headroom): a bug of the caller.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> &mut [u8] {
        assert!(n <= self.headroom(), "{n} bytes above headroom {}", self.headroom());
        let control = self.control_mut();
        control.start -= n as u32;
        control.len += n as u32;
        &mut self.data_mut()[..n]
    }

    /// Cuts `n` bytes off at the front.
    ///
    /// # Panics
    /// If `n` is above the length: a bug of the caller.
    #[inline]
    pub fn trim_front(&mut self, n: usize) {
        assert!(n <= self.len(), "{n} bytes above length {}", self.len());
        let control = self.control_mut();
        control.start += n as u32;
        control.len -= n as u32;
    }

    /// Makes it as fresh from the pool: full headroom, `len` bytes of data, metadata cleared.
    ///
    /// # Panics
    /// If `len` is above what the class has room for.
    #[inline]
    pub fn reset(&mut self, len: usize) {
        self.control_mut().start = DATA as u32;
        self.set_len(len);
        *self.meta_mut() = Meta::default();
    }

    #[inline]
    fn meta_ptr(&self) -> *mut Meta {
        // SAFETY: `Meta` follows `Control` in every buffer.
        unsafe { self.0.as_ptr().add(1).cast::<Meta>() }
    }

    /// What is known besides the bytes.
    #[inline]
    pub fn meta(&self) -> &Meta {
        // SAFETY: initialised by the pool before the handle was made, aligned, ours alone.
        unsafe { &*self.meta_ptr() }
    }

    /// What is known besides the bytes.
    #[inline]
    pub fn meta_mut(&mut self) -> &mut Meta {
        // SAFETY: as in `meta`, and `self` is borrowed mutably.
        unsafe { &mut *self.meta_ptr() }
    }

    /// Whether the buffer is of the large class.
    #[inline]
    pub fn is_large(&self) -> bool {
        self.control().end as usize > DATA + SMALL
    }

    /// What the frame amounts to on the wire: a super-frame counts as its segments, each with the
    /// headers repeated. Headers end where the parser found the payload, or at `hdr_len` before
    /// parsing.
    #[inline]
    pub fn wire(&self) -> Count {
        let (meta, len) = (self.meta(), self.len() as u64);
        if !meta.is_gso() || meta.gso_size == 0 {
            return Count { frames: 1, packets: 1, bytes: len };
        }
        let headers = if meta.payload != 0 { meta.payload } else { meta.hdr_len };
        let headers = u64::from(headers).min(len);
        let packets = (len - headers).div_ceil(u64::from(meta.gso_size)).max(1);
        Count { frames: 1, packets, bytes: len + (packets - 1) * headers }
    }

    /// Sends the buffer home, from any thread. The owner of the pool is faster with
    /// [`Pool::free`](crate::Pool::free).
    #[inline]
    pub fn release(self) {
        let home = self.control().home;
        // SAFETY: by `from_control`, `home` lives until this buffer is back in it.
        unsafe { Home::give_back(home, self.into_control()) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let home = self.control().home;
        // SAFETY: as in `release`; the handle ends here.
        unsafe {
            Home::count_stray(home);
            Home::give_back(home, self.0);
        }
        if cfg!(debug_assertions) && !std::thread::panicking() {
            panic!("a frame was dropped without being released");
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Frame");
        out.field("len", &self.len()).field("large", &self.is_large());
        out.field("meta", self.meta()).finish()
    }
}

/// Writes the first two parts of a buffer and makes the handle to it.
///
/// # Safety
/// `control` points to `end` writable bytes, aligned to 64, that nobody else uses, inside a mapping
/// that lives, as `home` does, until the buffer is back in `home`.
pub(crate) unsafe fn initialise(
    control: NonNull<Control>,
    home: *const Home,
    end: usize,
    len: usize,
) -> Frame {
    let fresh = Control { home, next: ptr::null_mut(), start: DATA as u32, len: len as u32, end: end as u32 };
    // SAFETY: by this function's contract; `Meta` lies behind `Control`, inside `end`.
    unsafe {
        control.write(fresh);
        control.add(1).cast::<Meta>().write(Meta::default());
        Frame::from_control(control)
    }
}
