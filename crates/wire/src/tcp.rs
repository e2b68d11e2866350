//! TCP, RFC 9293.

use crate::bytes::{be16, be32, put, room, split};
use crate::{WireError, checksum, ip};
use core::net::IpAddr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Byte ranges in the header, RFC 9293 (3.1).
pub mod field {
    use core::ops::Range;
    /// Source port.
    pub const SRC_PORT: Range<usize> = 0..2;
    /// Destination port.
    pub const DST_PORT: Range<usize> = 2..4;
    /// Sequence number.
    pub const SEQ: Range<usize> = 4..8;
    /// Acknowledgment number.
    pub const ACK: Range<usize> = 8..12;
    /// Data offset in words, in the upper half.
    pub const DATA_OFFSET: usize = 12;
    /// Control bits.
    pub const FLAGS: usize = 13;
    /// Window, to be scaled (RFC 7323).
    pub const WINDOW: Range<usize> = 14..16;
    /// Checksum, with the pseudo header.
    pub const CHECKSUM: Range<usize> = 16..18;
    /// Urgent pointer.
    pub const URGENT: Range<usize> = 18..20;
}

/// Control bits, RFC 9293 (3.1); ECE and CWR: RFC 3168 (6.1).
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// Congestion experienced, echoed.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// The largest shift count of the window scale option, RFC 7323 (2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_WINDOW_SCALE: u8 = 3;

/// A segment whose data offset fits the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the payload of an IP packet. The checksum is not looked at.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 20 bytes, [`WireError::HeaderLength`] when the data offset is below 5 words or beyond the
    /// bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (head, rest) = split::<HEADER_LEN>(bytes)?;
        let length = usize::from(head[field::DATA_OFFSET] >> 4) * 4;
        let (options, payload) = length
            .checked_sub(HEADER_LEN)
            .and_then(|options| rest.split_at_checked(options))
            .ok_or(WireError::HeaderLength { length, have: bytes.len() })?;
        Ok(View { head, options, payload })
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
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

    /// Sequence number.
    #[inline]
    pub fn seq(&self) -> u32 {
        be32(self.head, field::SEQ)
    }

    /// Acknowledgment number, without meaning unless [`flags::ACK`] is set.
    #[inline]
    pub fn ack(&self) -> u32 {
        be32(self.head, field::ACK)
    }

    /// Control bits, see [`flags`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.head[field::FLAGS]
    }

    /// Window as it stands, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.head, field::WINDOW)
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be16(self.head, field::URGENT)
    }

    /// The options with their padding.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The data.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The shift count of the window scale option, at most [`MAX_WINDOW_SCALE`]; none when it is absent or the options before it
    /// are malformed. RFC 7323 (2.2).
    #[inline]
    pub fn window_scale(&self) -> Option<u8> {
        let mut rest = self.options;
        loop {
            rest = match *rest {
                [OPTION_WINDOW_SCALE, 3, shift, ..] => return Some(shift.min(MAX_WINDOW_SCALE)),
                [] | [OPTION_END, ..] => return None,
                [OPTION_NOP, ..] => &rest[1..],
                [_, length, ..] if length >= 2 => rest.get(usize::from(length)..)?,
                _ => return None,
            };
        }
    }

    /// The header's values.
    pub fn header(&self) -> Header<'a> {
        Header {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            seq: self.seq(),
            ack: self.ack(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
            options: self.options,
        }
    }
}

/// The values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits, see [`flags`].
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, at most 40 bytes, a multiple of 4.
    pub options: &'a [u8],
}

impl Header<'_> {
    /// Writes header and payload with the checksum for these addresses, and returns the bytes of both.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short, [`WireError::HeaderLength`] for options too long or not padded.
    pub fn emit(
        &self,
        buffer: &mut [u8],
        src: IpAddr,
        dst: IpAddr,
        payload: &[u8],
    ) -> Result<usize, WireError> {
        let length = HEADER_LEN + self.options.len();
        if length > MAX_HEADER_LEN || !length.is_multiple_of(4) {
            return Err(WireError::HeaderLength { length, have: MAX_HEADER_LEN });
        }
        let segment = room(buffer, length + payload.len())?;
        put(segment, field::SRC_PORT, &self.src_port.to_be_bytes());
        put(segment, field::DST_PORT, &self.dst_port.to_be_bytes());
        put(segment, field::SEQ, &self.seq.to_be_bytes());
        put(segment, field::ACK, &self.ack.to_be_bytes());
        segment[field::DATA_OFFSET] = (length / 4) as u8 * 16;
        segment[field::FLAGS] = self.flags;
        put(segment, field::WINDOW, &self.window.to_be_bytes());
        put(segment, field::URGENT, &self.urgent.to_be_bytes());
        put(segment, HEADER_LEN..length, self.options);
        segment[length..].copy_from_slice(payload);
        let (src, dst) = (ip::to_bits(src), ip::to_bits(dst));
        let pseudo = checksum::pseudo_header(src, dst, ip::protocol::TCP, segment.len() as u32);
        put(segment, field::CHECKSUM, &pseudo.to_be_bytes());
        checksum::complete(segment, 0, field::CHECKSUM.start)?;
        Ok(segment.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENDS: (IpAddr, IpAddr) = (
        IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2)),
    );

    #[test]
    fn refused() {
        let mut bytes = [0; 28];
        for (words, ok) in [(0u8, false), (4, false), (5, true), (7, true), (8, false), (15, false)] {
            bytes[12] = words << 4;
            let error = WireError::HeaderLength { length: usize::from(words) * 4, have: 28 };
            assert_eq!(View::new_checked(&bytes).err(), (!ok).then_some(error), "{words} words");
        }
        assert_eq!(View::new_checked(&bytes[..19]).unwrap_err(), WireError::Truncated { need: 20, have: 19 });
        let mut buffer = [0; 80];
        let odd = Header { options: &[1, 1, 1], ..Header::default() };
        assert_eq!(
            odd.emit(&mut buffer, ENDS.0, ENDS.1, b""),
            Err(WireError::HeaderLength { length: 23, have: 60 })
        );
        let long = Header { options: &[1; 44], ..Header::default() };
        assert_eq!(
            long.emit(&mut buffer, ENDS.0, ENDS.1, b""),
            Err(WireError::HeaderLength { length: 64, have: 60 })
        );
        let short = Header::default().emit(&mut buffer[..21], ENDS.0, ENDS.1, b"ab");
        assert_eq!(short, Err(WireError::Truncated { need: 22, have: 21 }));
    }

    #[test]
    fn window_scale_options() {
        let rows: [(&str, &[u8], Option<u8>); 8] = [
            ("absent", &[2, 4, 5, 0xb4], None),
            ("alone", &[3, 3, 7, 0], Some(7)),
            (
                "as Linux sends it",
                &[2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 10],
                Some(10),
            ),
            ("above 14", &[1, 3, 3, 15], Some(14)),
            ("behind the end", &[0, 3, 3, 7], None),
            ("behind a bad length", &[8, 1, 0, 0, 3, 3, 7, 0], None),
            ("behind a length beyond the header", &[8, 200, 3, 3], None),
            ("with a wrong length", &[3, 4, 7, 0], None),
        ];
        for (name, options, expected) in rows {
            let mut bytes = [0; 60];
            let header = Header { options, ..Header::default() };
            let length = header.emit(&mut bytes, ENDS.0, ENDS.1, b"").unwrap();
            assert_eq!(View::new_checked(&bytes[..length]).unwrap().window_scale(), expected, "{name}");
        }
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            (src_port, dst_port, seq, ack, flags, window, urgent) in any::<(u16, u16, u32, u32, u8, u16, u16)>(),
            words in proptest::collection::vec(any::<[u8; 4]>(), 0..=10),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
            (src, dst) in prop_oneof![
                any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
                any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
            ],
        ) {
            let header = Header { src_port, dst_port, seq, ack, flags, window, urgent, options: words.as_flattened() };
            let mut bytes = vec![0xaa; 160];
            let length = header.emit(&mut bytes, src, dst, &payload).unwrap();
            bytes.truncate(length);
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);

            let oracle = etherparse::TcpSlice::from_slice(&bytes).unwrap();
            let expected = match (src, dst) {
                (IpAddr::V4(a), IpAddr::V4(b)) => oracle.calc_checksum_ipv4(a.octets(), b.octets()).unwrap(),
                (IpAddr::V6(a), IpAddr::V6(b)) => oracle.calc_checksum_ipv6(a.octets(), b.octets()).unwrap(),
                _ => unreachable!(),
            };
            // A checksum of 0 may be sent as ones as well, which is the same number.
            prop_assert_eq!(oracle.checksum() % 0xffff, expected % 0xffff);
            prop_assert_eq!((oracle.source_port(), oracle.destination_port()), (src_port, dst_port));
            prop_assert_eq!((oracle.sequence_number(), oracle.acknowledgment_number()), (seq, ack));
            prop_assert_eq!((oracle.window_size(), oracle.urgent_pointer()), (window, urgent));
        }

        #[test]
        fn never_panics_and_agrees_with_the_oracle(mut bytes: Vec<u8>, words in 4u8..10, options: Vec<u8>) {
            if bytes.len() > 12 {
                bytes[12] = words << 4;
                bytes.extend(&options);
            }
            let view = View::new_checked(&bytes);
            prop_assert_eq!(view.is_ok(), etherparse::TcpSlice::from_slice(&bytes).is_ok());
            if let Ok(view) = view {
                let _ = (view.header(), view.window_scale());
            }
        }
    }
}
