//! ICMP for IPv4, RFC 792.

use crate::bytes::{array, be16, put, room, split};
use crate::{WireError, checksum};

/// Bytes in front of the data or the quoted packet.
pub const HEADER_LEN: usize = 8;

/// Byte ranges in the header.
pub mod field {
    use core::ops::Range;
    /// Type.
    pub const TYPE: usize = 0;
    /// Code.
    pub const CODE: usize = 1;
    /// Checksum.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Four bytes that each type uses in its own way.
    pub const REST: Range<usize> = 4..8;
    /// Identifier of an echo.
    pub const IDENTIFIER: Range<usize> = 4..6;
    /// Sequence number of an echo.
    pub const SEQUENCE: Range<usize> = 6..8;
}

/// Types (IANA, "ICMP Type Numbers"), as far as they are used by name.
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable; code 4: fragmentation needed.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Source quench, deprecated by RFC 6633.
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Whether messages of this type report an error that belongs to a connection. Redirect and source quench, also errors for RFC 1122
/// (3.2.2), do not count: hosts need neither.
#[inline]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, kind::DESTINATION_UNREACHABLE | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM)
}

/// A message with at least a whole header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    bytes: &'a [u8],
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the payload of an IPv4 packet. The checksum is not looked at.
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

    /// Whether the message agrees with its checksum.
    #[inline]
    pub fn checksum_valid(&self) -> bool {
        checksum::is_valid(self.bytes, 0)
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

    /// The data of an echo; for an error the beginning of the packet that it is about, see [`crate::ipv4::View::new_quoted`].
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header {
        Header { kind: self.kind(), code: self.code(), rest: array(self.head, field::REST) }
    }
}

/// The values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type, see [`kind`].
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Identifier and sequence number of an echo; unused bytes, pointer or next-hop MTU (RFC 1191, 4) of an error.
    pub rest: [u8; 4],
}

impl Header {
    /// An echo request ([`kind::ECHO_REQUEST`]) or reply ([`kind::ECHO_REPLY`]).
    pub const fn echo(kind: u8, identifier: u16, sequence: u16) -> Header {
        let ([a, b], [c, d]) = (identifier.to_be_bytes(), sequence.to_be_bytes());
        Header { kind, code: 0, rest: [a, b, c, d] }
    }

    /// Writes header and payload with the checksum, and returns the bytes of both.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8], payload: &[u8]) -> Result<usize, WireError> {
        let message = room(buffer, HEADER_LEN + payload.len())?;
        message[field::TYPE] = self.kind;
        message[field::CODE] = self.code;
        put(message, field::CHECKSUM, &[0, 0]);
        put(message, field::REST, &self.rest);
        message[HEADER_LEN..].copy_from_slice(payload);
        let checksum = checksum::checksum(message);
        put(message, field::CHECKSUM, &checksum.to_be_bytes());
        Ok(message.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Icmpv4Slice, Icmpv4Type};
    use proptest::prelude::*;

    #[test]
    fn an_echo() {
        let mut bytes = [0; 12];
        assert_eq!(Header::echo(kind::ECHO_REQUEST, 0x1234, 7).emit(&mut bytes, b"ping"), Ok(12));
        assert_eq!(bytes[..2], [8, 0]);
        assert_eq!(bytes[4..], [0x12, 0x34, 0, 7, b'p', b'i', b'n', b'g']);
        let view = View::new_checked(&bytes).unwrap();
        assert!(view.checksum_valid());
        assert_eq!((view.identifier(), view.sequence()), (0x1234, 7));
        for bit in 0..12 * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!View::new_checked(&bad).unwrap().checksum_valid(), "bit {bit}");
        }
    }

    #[test]
    fn only_three_types_are_errors() {
        assert_eq!((0..=255).filter(|&kind| is_error(kind)).collect::<Vec<_>>(), [3, 11, 12]);
    }

    #[test]
    fn refused() {
        assert_eq!(View::new_checked(&[0; 7]).unwrap_err(), WireError::Truncated { need: 8, have: 7 });
        let short = Header::echo(8, 0, 0).emit(&mut [0; 8], b"a");
        assert_eq!(short, Err(WireError::Truncated { need: 9, have: 8 }));
    }

    proptest! {
        #[test]
        fn emitted_reads_back(kind: u8, code: u8, rest: [u8; 4], payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let header = Header { kind, code, rest };
            let mut bytes = vec![0xaa; 8 + payload.len()];
            prop_assert_eq!(header.emit(&mut bytes, &payload), Ok(bytes.len()));
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_valid());
        }

        #[test]
        fn echo_agrees_with_the_oracle(identifier: u16, sequence: u16, payload in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = vec![0xaa; 8 + payload.len()];
            Header::echo(kind::ECHO_REPLY, identifier, sequence).emit(&mut bytes, &payload).unwrap();
            let oracle = Icmpv4Slice::from_slice(&bytes).unwrap();
            let Icmpv4Type::EchoReply(echo) = oracle.icmp_type() else { panic!("{:?}", oracle.icmp_type()) };
            prop_assert_eq!((echo.id, echo.seq), (identifier, sequence));
            prop_assert_eq!(oracle.checksum(), oracle.icmp_type().calc_checksum(&payload));
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(view) = View::new_checked(&bytes) {
                let _ = (view.header(), view.checksum_valid(), view.identifier(), view.sequence(), view.payload());
            }
        }
    }
}
