//! The cache hint that batched lookups rest on.

/// Starts to load the first cache line of `item`: call it some lookups ahead of the use.
#[inline]
pub fn prefetch<T>(item: &T) {
    let address = std::ptr::from_ref(item);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
