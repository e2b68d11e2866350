//! Big-endian fields by named range, and fixed-size heads of slices.

use crate::WireError;
use core::ops::Range;

#[inline]
pub fn be16(bytes: &[u8], field: Range<usize>) -> u16 {
    u16::from_be_bytes([bytes[field.start], bytes[field.start + 1]])
}

#[inline]
pub fn be32(bytes: &[u8], field: Range<usize>) -> u32 {
    let at = field.start;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub fn array<const N: usize>(bytes: &[u8], field: Range<usize>) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[field]);
    out
}

#[inline]
pub fn put(bytes: &mut [u8], field: Range<usize>, value: &[u8]) {
    bytes[field].copy_from_slice(value);
}

/// The first `N` bytes and the rest, or how many are missing.
#[inline]
pub fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), WireError> {
    bytes.split_first_chunk().ok_or(WireError::Truncated { need: N, have: bytes.len() })
}

/// The first `need` bytes to write into, or how many are missing.
#[inline]
pub fn room(buffer: &mut [u8], need: usize) -> Result<&mut [u8], WireError> {
    let have = buffer.len();
    buffer.get_mut(..need).ok_or(WireError::Truncated { need, have })
}
