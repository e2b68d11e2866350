//! The header in front of every frame of a virtio network device, of a TAP and of a packet socket with `PACKET_VNET_HDR`: virtio
//! 1.2, 5.1.6, little-endian.

use crate::WireError;
use crate::bytes::{put, room, split};
use core::ops::Range;

/// Bytes without `num_buffers`: the legacy layout, which packet sockets use.
pub const HEADER_LEN: usize = 10;
/// Bytes with `num_buffers`.
pub const MERGED_HEADER_LEN: usize = 12;

/// In `flags`: the checksum field holds the pseudo header's sum, the rest is to be added.
pub const NEEDS_CSUM: u8 = 1;
/// In `flags`: the device has verified the checksum.
pub const DATA_VALID: u8 = 2;

/// In `gso_type`: an ordinary frame.
pub const GSO_NONE: u8 = 0;
/// In `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// In `gso_type`: UDP over IPv4, to be fragmented.
pub const GSO_UDP: u8 = 3;
/// In `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// In `gso_type`: UDP, to be cut into datagrams.
pub const GSO_UDP_L4: u8 = 5;
/// Or-ed to `gso_type`: TCP with CWR set.
pub const GSO_ECN: u8 = 0x80;

const HDR_LEN: Range<usize> = 2..4;
const GSO_SIZE: Range<usize> = 4..6;
const CSUM_START: Range<usize> = 6..8;
const CSUM_OFFSET: Range<usize> = 8..10;
const NUM_BUFFERS: Range<usize> = 10..12;

/// The values of `struct virtio_net_hdr`. Any value is possible in any field: whoever takes it from a guest checks it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` values, perhaps with [`GSO_ECN`].
    pub gso_type: u8,
    /// Bytes of headers in front of the payload: a hint.
    pub hdr_len: u16,
    /// Bytes of payload in each segment.
    pub gso_size: u16,
    /// Where the checksum begins, in bytes from the beginning of the frame.
    pub csum_start: u16,
    /// Where its field lies, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl Header {
    /// Reads the first 10 bytes; `num_buffers`, if there, is left out.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 10 bytes.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, WireError> {
        let (head, _) = split::<HEADER_LEN>(bytes)?;
        let le16 = |field: Range<usize>| u16::from_le_bytes([head[field.start], head[field.start + 1]]);
        Ok(Header {
            flags: head[0],
            gso_type: head[1],
            hdr_len: le16(HDR_LEN),
            gso_size: le16(GSO_SIZE),
            csum_start: le16(CSUM_START),
            csum_offset: le16(CSUM_OFFSET),
        })
    }

    /// Writes 10 bytes and returns their length.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let head = room(buffer, HEADER_LEN)?;
        head[0] = self.flags;
        head[1] = self.gso_type;
        put(head, HDR_LEN, &self.hdr_len.to_le_bytes());
        put(head, GSO_SIZE, &self.gso_size.to_le_bytes());
        put(head, CSUM_START, &self.csum_start.to_le_bytes());
        put(head, CSUM_OFFSET, &self.csum_offset.to_le_bytes());
        Ok(HEADER_LEN)
    }

    /// Writes 12 bytes, with `num_buffers` for a frame in one buffer, and returns their length. The standard asks for 1 there from
    /// a device and 0 from a driver (virtio 1.2, 5.1.6.2.1 and 5.1.6.4.1).
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    #[inline]
    pub fn emit_merged(&self, buffer: &mut [u8], num_buffers: u16) -> Result<usize, WireError> {
        let head = room(buffer, MERGED_HEADER_LEN)?;
        self.emit(head)?;
        put(head, NUM_BUFFERS, &num_buffers.to_le_bytes());
        Ok(MERGED_HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout() {
        let header = Header {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV4 | GSO_ECN,
            hdr_len: 66,
            gso_size: 1448,
            csum_start: 34,
            csum_offset: 16,
        };
        let mut bytes = [0xff; 12];
        assert_eq!(header.emit_merged(&mut bytes, 1), Ok(12));
        assert_eq!(bytes, [1, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0, 1, 0]);
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn too_short() {
        assert_eq!(Header::parse(&[0; 9]), Err(WireError::Truncated { need: 10, have: 9 }));
        assert_eq!(Header::default().emit(&mut [0; 9]), Err(WireError::Truncated { need: 10, have: 9 }));
        let merged = Header::default().emit_merged(&mut [0; 11], 0);
        assert_eq!(merged, Err(WireError::Truncated { need: 12, have: 11 }));
    }

    proptest! {
        #[test]
        fn every_ten_bytes_survive(bytes: [u8; 10]) {
            let mut written = [0; 10];
            prop_assert_eq!(Header::parse(&bytes).unwrap().emit(&mut written), Ok(10));
            prop_assert_eq!(written, bytes);
        }
    }
}
