//! ICMP for IPv6, RFC 4443. Neighbor discovery is in [`crate::ndp`].

use crate::bytes::{array, be16, put, room, split};
use crate::{WireError, checksum, ip};
use core::net::Ipv6Addr;

/// Bytes in front of the data or the quoted packet.
pub const HEADER_LEN: usize = 8;

/// Byte ranges in the header.
pub mod field {
    use core::ops::Range;
    /// Type.
    pub const TYPE: usize = 0;
    /// Code.
    pub const CODE: usize = 1;
    /// Checksum, with the pseudo header.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Four bytes that each type uses in its own way.
    pub const REST: Range<usize> = 4..8;
    /// Identifier of an echo.
    pub const IDENTIFIER: Range<usize> = 4..6;
    /// Sequence number of an echo.
    pub const SEQUENCE: Range<usize> = 6..8;
}

/// Types (IANA, "ICMPv6 'type' Numbers"), as far as they are used by name.
pub mod kind {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation, RFC 4861 (4.1).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement, RFC 4861 (4.2).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbor solicitation, RFC 4861 (4.3).
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbor advertisement, RFC 4861 (4.4).
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
}

/// Whether messages of this type report one of the errors that RFC 4443 (3) defines.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, kind::DESTINATION_UNREACHABLE..=kind::PARAMETER_PROBLEM)
}

/// A message with at least a whole header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the upper layer of an IPv6 packet. The checksum is not looked at.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 8 bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (head, payload) = split(bytes)?;
        Ok(View { bytes, head, payload })
    }

    /// Type, see [`kind`].
    #[inline]
    pub fn kind(&self) -> u8 {
        self.head[field::TYPE]
    }

    /// Code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.head[field::CODE]
    }

    /// Whether the message agrees with its checksum, for these addresses of the packet. RFC 4443 (2.3).
    #[inline]
    pub fn checksum_valid(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        checksum::is_valid(self.bytes, pseudo_header(src, dst, self.bytes.len()))
    }

    /// Identifier of an echo.
    #[inline]
    pub fn identifier(&self) -> u16 {
        be16(self.head, field::IDENTIFIER)
    }

    /// Sequence number of an echo.
    #[inline]
    pub fn sequence(&self) -> u16 {
        be16(self.head, field::SEQUENCE)
    }

    /// The data of an echo; for an error the beginning of the packet that it is about, see [`crate::ipv6::View::new_quoted`].
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header {
        Header { kind: self.kind(), code: self.code(), rest: array(self.head, field::REST) }
    }
}

fn pseudo_header(src: Ipv6Addr, dst: Ipv6Addr, length: usize) -> u16 {
    checksum::pseudo_header(src.to_bits(), dst.to_bits(), ip::protocol::ICMPV6, length as u32)
}

/// The values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type, see [`kind`].
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier and sequence number of an echo; unused bytes, MTU or pointer of an error; flags in neighbor discovery.
    pub rest: [u8; 4],
}

impl Header {
    /// An echo request ([`kind::ECHO_REQUEST`]) or reply ([`kind::ECHO_REPLY`]).
    pub const fn echo(kind: u8, identifier: u16, sequence: u16) -> Header {
        let ([a, b], [c, d]) = (identifier.to_be_bytes(), sequence.to_be_bytes());
        Header { kind, code: 0, rest: [a, b, c, d] }
    }

    /// Writes header and payload with the checksum for these addresses, and returns the bytes of both.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    pub fn emit(
        &self,
        buffer: &mut [u8],
        src: Ipv6Addr,
        dst: Ipv6Addr,
        payload: &[u8],
    ) -> Result<usize, WireError> {
        let message = room(buffer, HEADER_LEN + payload.len())?;
        message[HEADER_LEN..].copy_from_slice(payload);
        self.finish(message, src, dst)
    }

    /// Writes the header in front of a body that is in its place already, and the checksum over both.
    pub(crate) fn finish(
        &self,
        message: &mut [u8],
        src: Ipv6Addr,
        dst: Ipv6Addr,
    ) -> Result<usize, WireError> {
        message[field::TYPE] = self.kind;
        message[field::CODE] = self.code;
        put(message, field::REST, &self.rest);
        let pseudo = pseudo_header(src, dst, message.len());
        put(message, field::CHECKSUM, &pseudo.to_be_bytes());
        checksum::complete(message, 0, field::CHECKSUM.start)?;
        Ok(message.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Icmpv6Slice, Icmpv6Type};
    use proptest::prelude::*;

    #[test]
    fn the_checksum_covers_message_and_addresses() {
        let (a, b): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let mut bytes = [0; 12];
        Header::echo(kind::ECHO_REQUEST, 1, 2).emit(&mut bytes, a, b, b"ping").unwrap();
        let view = View::new_checked(&bytes).unwrap();
        assert!(view.checksum_valid(a, b));
        assert!(!view.checksum_valid(a, a));
        assert_eq!((view.identifier(), view.sequence(), view.payload()), (1, 2, &b"ping"[..]));
        for bit in 0..12 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!View::new_checked(&bad).unwrap().checksum_valid(a, b), "bit {bit}");
        }
    }

    #[test]
    fn four_types_are_errors() {
        assert_eq!((0..=255).filter(|&kind| is_error(kind)).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn refused() {
        assert_eq!(View::new_checked(&[0; 7]).unwrap_err(), WireError::Truncated { need: 8, have: 7 });
        let any = Ipv6Addr::UNSPECIFIED;
        let short = Header::echo(128, 0, 0).emit(&mut [0; 8], any, any, b"a");
        assert_eq!(short, Err(WireError::Truncated { need: 9, have: 8 }));
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            kind: u8, code: u8, rest: [u8; 4], src: Ipv6Addr, dst: Ipv6Addr,
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = Header { kind, code, rest };
            let mut bytes = vec![0xaa; 8 + payload.len()];
            prop_assert_eq!(header.emit(&mut bytes, src, dst, &payload), Ok(bytes.len()));
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_valid(src, dst));
            let oracle = Icmpv6Slice::from_slice(&bytes).unwrap();
            prop_assert!(oracle.is_checksum_valid(src.octets(), dst.octets()));
        }

        #[test]
        fn echo_agrees_with_the_oracle(identifier: u16, sequence: u16, src: Ipv6Addr, dst: Ipv6Addr) {
            let mut bytes = [0; 8];
            Header::echo(kind::ECHO_REPLY, identifier, sequence).emit(&mut bytes, src, dst, b"").unwrap();
            let oracle = Icmpv6Slice::from_slice(&bytes).unwrap();
            let Icmpv6Type::EchoReply(echo) = oracle.icmp_type() else { panic!("{:?}", oracle.icmp_type()) };
            prop_assert_eq!((echo.id, echo.seq), (identifier, sequence));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>, src: Ipv6Addr, dst: Ipv6Addr) {
            if let Ok(view) = View::new_checked(&bytes) {
                let _ = (view.header(), view.checksum_valid(src, dst), view.identifier(), view.sequence(), view.payload());
            }
        }
    }
}
