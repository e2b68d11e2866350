//! Where frames come from and go back to.
//!
//! Each pool belongs to one thread, which takes and frees without atomics. Other threads send
//! frames home through one lock-free list that can never be full: they push, the owner takes the
//! whole list with one swap, so that the ABA problem cannot arise.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::frame::{Control, DATA, Frame, LARGE, SMALL, initialise};

/// The part of a pool that other threads see.
pub(crate) struct Home {
    /// Buffers sent home and not yet taken in.
    returned: AtomicPtr<Control>,
    /// Frames dropped without being released.
    stray: AtomicU64,
}

impl Home {
    /// Pushes a buffer onto the list of returned ones.
    ///
    /// # Safety
    /// `this` lives and is the home of `buffer`; the caller gives up `buffer`.
    pub(crate) unsafe fn give_back(this: *const Home, buffer: NonNull<Control>) {
        // SAFETY: by this function's contract. `this` is not touched after the exchange
        // succeeds, since from then on the owner may end the pool.
        unsafe {
            let returned = &(*this).returned;
            let mut head = returned.load(Ordering::Relaxed);
            loop {
                (*buffer.as_ptr()).next = head;
                match returned.compare_exchange_weak(
                    head,
                    buffer.as_ptr(),
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(now) => head = now,
                }
            }
        }
    }

    /// # Safety
    /// `this` lives: the caller has not yet given back a frame of it.
    pub(crate) unsafe fn count_stray(this: *const Home) {
        // SAFETY: by this function's contract.
        unsafe { (*this).stray.fetch_add(1, Ordering::Relaxed) };
    }
}

/// Buffers of one size in one mapping.
struct Class {
    memory: *mut u8,
    /// Bytes of one buffer that are used, and bytes from one to the next.
    end: usize,
    stride: usize,
    count: usize,
    /// Buffers that were never used, and so need no page of memory yet, are the last ones.
    touched: usize,
    free: *mut Control,
    free_len: usize,
}

impl Class {
    fn new(room: usize, count: usize) -> io::Result<Class> {
        let end = DATA + room;
        let stride = end.next_multiple_of(64);
        let mut class = Class {
            memory: ptr::null_mut(),
            end,
            stride,
            count,
            touched: 0,
            free: ptr::null_mut(),
            free_len: 0,
        };
        if count == 0 {
            return Ok(class);
        }
        let bytes = stride
            .checked_mul(count)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "pool too large"))?;
        // SAFETY: a new anonymous mapping touches no memory of ours.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        class.memory = memory.cast();
        Ok(class)
    }

    #[inline]
    fn available(&self) -> usize {
        self.free_len + self.count - self.touched
    }

    #[inline]
    fn take(&mut self) -> Option<NonNull<Control>> {
        if let Some(buffer) = NonNull::new(self.free) {
            // SAFETY: buffers in the list are initialised and ours.
            self.free = unsafe { buffer.as_ref() }.next;
            self.free_len -= 1;
            return Some(buffer);
        }
        if self.touched == self.count {
            return None;
        }
        // SAFETY: `touched < count`, so the buffer lies inside the mapping.
        let buffer = unsafe { self.memory.add(self.touched * self.stride) };
        self.touched += 1;
        NonNull::new(buffer.cast())
    }

    /// # Safety
    /// `buffer` is an initialised one of this class, and nobody else's.
    #[inline]
    unsafe fn put(&mut self, buffer: NonNull<Control>) {
        // SAFETY: by this function's contract.
        unsafe { (*buffer.as_ptr()).next = self.free };
        self.free = buffer.as_ptr();
        self.free_len += 1;
    }

    /// # Safety
    /// No buffer of this class is in use.
    unsafe fn unmap(&mut self) {
        if !self.memory.is_null() {
            // SAFETY: the mapping is ours, of this size, and by contract unused.
            unsafe { libc::munmap(self.memory.cast(), self.stride * self.count) };
        }
    }
}

/// A store of frames that one thread owns. It may move to another thread, but only one uses it.
///
/// Memory outlives frames: a pool that ends while frames are still out leaves its memory in place.
pub struct Pool {
    home: NonNull<Home>,
    small: Class,
    large: Class,
    /// Not `Sync`.
    _owner: PhantomData<Cell<()>>,
}

// SAFETY: the lists are reached through `&mut self` only; `Home` is made of atomics.
unsafe impl Send for Pool {}

impl Pool {
    /// Room for `small` frames of [`SMALL`] and `large` frames of [`LARGE`] bytes. Memory is
    /// reserved now and taken when first used.
    ///
    /// # Errors
    /// What the kernel says when it refuses the mapping.
    pub fn new(small: usize, large: usize) -> io::Result<Pool> {
        let mut small = Class::new(SMALL, small)?;
        let large = Class::new(LARGE, large).inspect_err(|_| {
            // SAFETY: no buffer has been taken yet.
            unsafe { small.unmap() }
        })?;
        let home = Box::new(Home { returned: AtomicPtr::new(ptr::null_mut()), stray: AtomicU64::new(0) });
        Ok(Pool { home: NonNull::from(Box::leak(home)), small, large, _owner: PhantomData })
    }

    /// A frame of `len` bytes with full headroom and cleared metadata; its bytes are whatever the
    /// buffer held before. A large one serves when there is no small one. `None` when there is no
    /// frame, or none so large.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Option<Frame> {
        if len > LARGE {
            return None;
        }
        match self.take(len) {
            Some(frame) => Some(frame),
            None => {
                self.collect();
                self.take(len)
            }
        }
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<Frame> {
        let (buffer, end) = match (len <= SMALL).then(|| self.small.take()).flatten() {
            Some(buffer) => (buffer, self.small.end),
            None => (self.large.take()?, self.large.end),
        };
        // SAFETY: the buffer was free and has room for `end` bytes, `len` of them behind the
        // headroom; `drop` keeps mapping and home while it is out.
        Some(unsafe { initialise(buffer, self.home.as_ptr(), end, len) })
    }

    /// A frame with a copy of `bytes`.
    pub fn copy_from(&mut self, bytes: &[u8]) -> Option<Frame> {
        let mut frame = self.alloc(bytes.len())?;
        frame.data_mut().copy_from_slice(bytes);
        Some(frame)
    }

    /// Takes a frame back. One of another pool is sent to its own home.
    #[inline]
    pub fn free(&mut self, frame: Frame) {
        if !ptr::eq(frame.control().home, self.home.as_ptr()) {
            return frame.release();
        }
        let large = frame.is_large();
        let buffer = frame.into_control();
        // SAFETY: the frame was of this pool and this class, and the handle is gone.
        unsafe { self.class(large).put(buffer) }
    }

    /// Free frames: small ones, large ones.
    pub fn available(&mut self) -> (usize, usize) {
        self.collect();
        (self.small.available(), self.large.available())
    }

    /// Frames that are out.
    pub fn outstanding(&mut self) -> usize {
        let (small, large) = self.available();
        self.small.count + self.large.count - small - large
    }

    /// Frames that were dropped without being released, since the start. Anything but 0 is a bug.
    pub fn stray(&self) -> u64 {
        // SAFETY: `home` lives as long as the pool.
        unsafe { self.home.as_ref() }.stray.load(Ordering::Relaxed)
    }

    fn class(&mut self, large: bool) -> &mut Class {
        if large { &mut self.large } else { &mut self.small }
    }

    /// Takes in what other threads sent home.
    fn collect(&mut self) {
        // SAFETY: `home` lives as long as the pool.
        let home = unsafe { self.home.as_ref() };
        let mut next = home.returned.swap(ptr::null_mut(), Ordering::Acquire);
        while let Some(buffer) = NonNull::new(next) {
            // SAFETY: whoever pushed it gave it up, and the swap made it ours with all
            // that was written before; `put` changes `next` only after it is read.
            unsafe {
                next = buffer.as_ref().next;
                let large = buffer.as_ref().end as usize == self.large.end;
                self.class(large).put(buffer);
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.outstanding() != 0 {
            return;
        }
        // SAFETY: every buffer is here, so no handle to the mappings or to `home` is left.
        unsafe {
            self.small.unmap();
            self.large.unmap();
            drop(Box::from_raw(self.home.as_ptr()));
        }
    }
}
