//! UDP, RFC 768.

use crate::bytes::{be16, put, room, split};
use crate::{WireError, checksum, ip};
use core::net::IpAddr;

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// Byte ranges in the header.
pub mod field {
    use core::ops::Range;
    /// Source port.
    pub const SRC_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DST_PORT: Range<usize> = 2..4;
    /// Bytes of header and payload.
    pub const LENGTH: Range<usize> = 4..6;
    /// Checksum, with the pseudo header; 0 when IPv4 goes without.
    pub const CHECKSUM: Range<usize> = 6..8;
}

/// A datagram whose length fits the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the payload of an IP packet; bytes behind the length are left out. The checksum is not looked at.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 bytes, [`WireError::PacketLength`] when the length is below 8 or beyond the bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (head, rest) = split::<HEADER_LEN>(bytes)?;
        let length = usize::from(be16(head, field::LENGTH));
        let payload = length
            .checked_sub(HEADER_LEN)
            .and_then(|payload| rest.get(..payload))
            .ok_or(WireError::PacketLength { length, have: bytes.len() })?;
        Ok(View { head, payload })
    }

    /// The same for a GSO super-frame, whose length may be 0: then all the bytes belong to it.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    #[inline]
    pub fn new_super_frame(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        match split::<HEADER_LEN>(bytes)? {
            (head, payload) if be16(head, field::LENGTH) == 0 => Ok(View { head, payload }),
            _ => View::new_checked(bytes),
        }
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        be16(self.head, field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        be16(self.head, field::DST_PORT)
    }

    /// The data.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header {
        Header { src_port: self.src_port(), dst_port: self.dst_port() }
    }
}

/// The values of a header that do not follow from the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl Header {
    /// Writes header and payload with the checksum for these addresses, and returns the bytes of both.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short, [`WireError::PacketLength`] above 65,535 bytes.
    pub fn emit(
        &self,
        buffer: &mut [u8],
        src: IpAddr,
        dst: IpAddr,
        payload: &[u8],
    ) -> Result<usize, WireError> {
        let total = HEADER_LEN + payload.len();
        let length = u16::try_from(total)
            .map_err(|_| WireError::PacketLength { length: total, have: usize::from(u16::MAX) })?;
        let datagram = room(buffer, total)?;
        put(datagram, field::SRC_PORT, &self.src_port.to_be_bytes());
        put(datagram, field::DST_PORT, &self.dst_port.to_be_bytes());
        put(datagram, field::LENGTH, &length.to_be_bytes());
        datagram[HEADER_LEN..].copy_from_slice(payload);
        let (src, dst) = (ip::to_bits(src), ip::to_bits(dst));
        let pseudo = checksum::pseudo_header(src, dst, ip::protocol::UDP, u32::from(length));
        put(datagram, field::CHECKSUM, &pseudo.to_be_bytes());
        checksum::complete(datagram, 0, field::CHECKSUM.start)?;
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths() {
        let rows = [
            // bytes, length field, payload of a datagram, of a super-frame
            (8, 8, Some(0), Some(0)),
            (8, 7, None, None),
            (8, 9, None, None),
            (12, 12, Some(4), Some(4)),
            (12, 10, Some(2), Some(2)),
            (12, 13, None, None),
            (12, 0, None, Some(4)),
            (7, 0, None, None),
        ];
        for (bytes, length, datagram, super_frame) in rows {
            let mut buffer = [0; 12];
            buffer[5] = length;
            let payload = |view: Result<View<'_>, WireError>| view.ok().map(|v| v.payload().len());
            assert_eq!(payload(View::new_checked(&buffer[..bytes])), datagram, "{length} in {bytes}");
            assert_eq!(payload(View::new_super_frame(&buffer[..bytes])), super_frame, "{length} in {bytes}");
        }
        let header = Header { src_port: 1, dst_port: 2 };
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut buffer = vec![0; 70_000];
        let short = header.emit(&mut buffer[..8], a, b, b"a");
        assert_eq!(short, Err(WireError::Truncated { need: 9, have: 8 }));
        let long = header.emit(&mut buffer, a, b, &[0; 65_528]);
        assert_eq!(long, Err(WireError::PacketLength { length: 65_536, have: 65_535 }));
    }

    #[test]
    fn a_zero_checksum_is_sent_as_ones() {
        // Ports chosen so that the sum over pseudo header, header and payload is 0xffff.
        let (a, b) = (IpAddr::from([0, 0, 0, 0]), IpAddr::from([0, 0, 0, 0]));
        let mut bytes = [0; 8];
        Header { src_port: 0xffff - 17 - 8 - 8, dst_port: 0 }.emit(&mut bytes, a, b, b"").unwrap();
        assert_eq!(bytes[6..8], [0xff, 0xff]);
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            src_port: u16, dst_port: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            v4: ([u8; 4], [u8; 4]), v6: ([u8; 16], [u8; 16]),
        ) {
            let header = Header { src_port, dst_port };
            let mut bytes = vec![0xaa; 8 + payload.len()];
            header.emit(&mut bytes, v4.0.into(), v4.1.into(), &payload).unwrap();
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);
            let (oracle, _) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
            prop_assert_eq!(oracle.checksum, oracle.calc_checksum_ipv4_raw(v4.0, v4.1, &payload).unwrap());
            prop_assert_eq!((oracle.source_port, oracle.destination_port), (src_port, dst_port));
            prop_assert_eq!(usize::from(oracle.length), bytes.len());

            header.emit(&mut bytes, v6.0.into(), v6.1.into(), &payload).unwrap();
            let (oracle, _) = etherparse::UdpHeader::from_slice(&bytes).unwrap();
            prop_assert_eq!(oracle.checksum, oracle.calc_checksum_ipv6_raw(v6.0, v6.1, &payload).unwrap());
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            for view in [View::new_checked(&bytes), View::new_super_frame(&bytes)].into_iter().flatten() {
                let _ = (view.header(), view.payload());
            }
        }
    }
}
