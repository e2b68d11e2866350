//! IPv4, RFC 791.

use crate::WireError;
use crate::bytes::{array, be16, put, room, split};
use crate::checksum;
use core::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;

/// Byte ranges in the header, RFC 791 (3.1).
pub mod field {
    use core::ops::Range;
    /// Version and header length in words.
    pub const VERSION_IHL: usize = 0;
    /// Type of service: DSCP (RFC 2474) and ECN (RFC 3168).
    pub const TOS: usize = 1;
    /// Bytes of header and payload.
    pub const TOTAL_LENGTH: Range<usize> = 2..4;
    /// Identification.
    pub const IDENTIFICATION: Range<usize> = 4..6;
    /// Flags and fragment offset in units of 8 bytes.
    pub const FRAGMENT: Range<usize> = 6..8;
    /// Time to live.
    pub const TTL: usize = 8;
    /// Protocol.
    pub const PROTOCOL: usize = 9;
    /// Header checksum.
    pub const CHECKSUM: Range<usize> = 10..12;
    /// Source address.
    pub const SRC: Range<usize> = 12..16;
    /// Destination address.
    pub const DST: Range<usize> = 16..20;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

/// How the total length is held against the bytes there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    SuperFrame,
    Quoted,
}

/// A packet whose header and total length fit the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; HEADER_LEN],
    header: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the payload of a frame; bytes behind the total length are padding and left out. The checksum is not looked at.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 20 bytes, [`WireError::Field`] for another version, [`WireError::HeaderLength`] and
    /// [`WireError::PacketLength`] for lengths that contradict each other or the bytes there.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::Whole)
    }

    /// The same for a GSO super-frame, whose total length may be 0: then all the bytes belong to it.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    #[inline]
    pub fn new_super_frame(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::SuperFrame)
    }

    /// The same for the beginning of a packet that an ICMP error quotes: the total length may say more than is there. RFC 792.
    ///
    /// # Errors
    /// As [`View::new_checked`], without those about the total length.
    #[inline]
    pub fn new_quoted(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::Quoted)
    }

    #[inline]
    fn check(bytes: &'a [u8], extent: Extent) -> Result<View<'a>, WireError> {
        let (head, _) = split::<HEADER_LEN>(bytes)?;
        let version = head[field::VERSION_IHL] >> 4;
        if version != 4 {
            return Err(WireError::Field { name: "IP version", value: u32::from(version) });
        }
        let have = bytes.len();
        let length = usize::from(head[field::VERSION_IHL] & 0xf) * 4;
        if length < HEADER_LEN || length > have {
            return Err(WireError::HeaderLength { length, have });
        }
        let (header, rest) = bytes.split_at(length);
        let total = usize::from(be16(head, field::TOTAL_LENGTH));
        let payload = match extent {
            Extent::Quoted => &rest[..rest.len().min(total.saturating_sub(length))],
            Extent::SuperFrame if total == 0 => rest,
            _ => total
                .checked_sub(length)
                .and_then(|payload| rest.get(..payload))
                .ok_or(WireError::PacketLength { length: total, have })?,
        };
        Ok(View { head, header, payload })
    }

    /// Bytes of the header with its options.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.header.len()
    }

    /// Bytes of header and payload together, as far as they are there.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Type of service: DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.head[field::TOS]
    }

    /// Identification of the datagram, for its fragments.
    #[inline]
    pub fn identification(&self) -> u16 {
        be16(self.head, field::IDENTIFICATION)
    }

    /// DF: routers must not fragment it.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        be16(self.head, field::FRAGMENT) & DONT_FRAGMENT != 0
    }

    /// MF: this is not the last fragment.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        be16(self.head, field::FRAGMENT) & MORE_FRAGMENTS != 0
    }

    /// Where in the datagram this fragment belongs, in units of 8 bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        be16(self.head, field::FRAGMENT) & FRAGMENT_OFFSET
    }

    /// Whether this is a part of a datagram.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        be16(self.head, field::FRAGMENT) & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Time to live, in hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.head[field::TTL]
    }

    /// Protocol number of the payload, see [`crate::ip::protocol`].
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.head[field::PROTOCOL]
    }

    /// Whether the header, options included, agrees with its checksum.
    #[inline]
    pub fn checksum_valid(&self) -> bool {
        if self.header.len() == HEADER_LEN {
            // Nearly always, and of a length that the compiler knows.
            checksum::is_valid(self.head, 0)
        } else {
            checksum::is_valid(self.header, 0)
        }
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        array::<4>(self.head, field::SRC).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        array::<4>(self.head, field::DST).into()
    }

    /// The options, padded to a multiple of 4 bytes.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        &self.header[HEADER_LEN..]
    }

    /// The payload without the frame's padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header<'a> {
        Header {
            tos: self.tos(),
            payload_len: self.payload.len(),
            identification: self.identification(),
            dont_fragment: self.dont_fragment(),
            more_fragments: self.more_fragments(),
            fragment_offset: self.fragment_offset(),
            ttl: self.ttl(),
            protocol: self.protocol(),
            src: self.src(),
            dst: self.dst(),
            options: self.options(),
        }
    }
}

/// The values of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Bytes behind the header.
    pub payload_len: usize,
    /// Identification of the datagram.
    pub identification: u16,
    /// DF.
    pub dont_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// In units of 8 bytes, 13 bits.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Options, at most 40 bytes, a multiple of 4.
    pub options: &'a [u8],
}

impl<'a> Header<'a> {
    /// A header without options, of a whole datagram with DF set (identification 0, RFC 6864, 4.1) and 64 hops to live.
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, payload_len: usize) -> Header<'a> {
        Header {
            tos: 0,
            payload_len,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            src,
            dst,
            options: &[],
        }
    }

    /// Writes the header with its checksum and returns its length.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short for the header, [`WireError::HeaderLength`] for options too long or
    /// not padded, [`WireError::PacketLength`] above 65,535 bytes in all, [`WireError::Field`] for a fragment offset above 13 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let length = HEADER_LEN + self.options.len();
        if length > MAX_HEADER_LEN || !length.is_multiple_of(4) {
            return Err(WireError::HeaderLength { length, have: MAX_HEADER_LEN });
        }
        let total = u16::try_from(length.saturating_add(self.payload_len))
            .map_err(|_| WireError::PacketLength { length: self.payload_len, have: usize::from(u16::MAX) })?;
        if self.fragment_offset > FRAGMENT_OFFSET {
            return Err(WireError::Field { name: "fragment offset", value: u32::from(self.fragment_offset) });
        }
        let flag = |set, bit| if set { bit } else { 0 };
        let fragment = self.fragment_offset
            | flag(self.dont_fragment, DONT_FRAGMENT)
            | flag(self.more_fragments, MORE_FRAGMENTS);

        let header = room(buffer, length)?;
        header[field::VERSION_IHL] = 0x40 | (length / 4) as u8;
        header[field::TOS] = self.tos;
        put(header, field::TOTAL_LENGTH, &total.to_be_bytes());
        put(header, field::IDENTIFICATION, &self.identification.to_be_bytes());
        put(header, field::FRAGMENT, &fragment.to_be_bytes());
        header[field::TTL] = self.ttl;
        header[field::PROTOCOL] = self.protocol;
        put(header, field::CHECKSUM, &[0, 0]);
        put(header, field::SRC, &self.src.octets());
        put(header, field::DST, &self.dst.octets());
        put(header, HEADER_LEN..length, self.options);
        let checksum = checksum::checksum(header);
        put(header, field::CHECKSUM, &checksum.to_be_bytes());
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = vec![0; 28];
        Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 8).emit(&mut bytes).unwrap();
        edit(&mut bytes);
        bytes
    }

    #[test]
    fn refused() {
        type Row = (&'static str, fn(&mut Vec<u8>), WireError);
        let rows: [Row; 7] = [
            ("no header", |b| b.truncate(19), WireError::Truncated { need: 20, have: 19 }),
            ("version 6", |b| b[0] = 0x65, WireError::Field { name: "IP version", value: 6 }),
            ("IHL 4", |b| b[0] = 0x44, WireError::HeaderLength { length: 16, have: 28 }),
            ("IHL beyond the packet", |b| b[0] = 0x48, WireError::HeaderLength { length: 32, have: 28 }),
            ("total below header", |b| b[3] = 19, WireError::PacketLength { length: 19, have: 28 }),
            ("total beyond the frame", |b| b[3] = 29, WireError::PacketLength { length: 29, have: 28 }),
            ("total 0", |b| b[3] = 0, WireError::PacketLength { length: 0, have: 28 }),
        ];
        for (name, edit, error) in rows {
            assert_eq!(View::new_checked(&packet(edit)).unwrap_err(), error, "{name}");
        }
    }

    #[test]
    fn padding_super_frames_and_quotes() {
        let padded = packet(|b| b.extend([0xee; 18]));
        assert_eq!(View::new_checked(&padded).unwrap().payload().len(), 8);
        let zero = packet(|b| b[3] = 0);
        assert_eq!(View::new_super_frame(&zero).unwrap().payload().len(), 8);
        assert_eq!(View::new_super_frame(&padded).unwrap().payload().len(), 8);
        let cut = packet(|b| b.truncate(24));
        assert!(View::new_super_frame(&cut).is_err());
        assert_eq!(View::new_quoted(&cut).unwrap().payload().len(), 4);
        assert_eq!(View::new_quoted(&padded).unwrap().payload().len(), 8);
        assert_eq!(View::new_quoted(&zero).unwrap().payload().len(), 0);
    }

    #[test]
    fn fragments() {
        // flags and offset, is a fragment
        for (value, fragment) in
            [(0x0000u16, false), (0x4000, false), (0x2000, true), (0x0001, true), (0x3fff, true)]
        {
            let bytes = packet(|b| b[6..8].copy_from_slice(&value.to_be_bytes()));
            assert_eq!(View::new_checked(&bytes).unwrap().is_fragment(), fragment, "{value:#06x}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen_by_the_checksum() {
        assert!(View::new_checked(&packet(|_| ())).unwrap().checksum_valid());
        // Not in the first two bytes and the length, which the view itself refuses.
        for bit in 4 * 8..20 * 8 {
            let bytes = packet(|b| b[bit / 8] ^= 1 << (bit % 8));
            assert!(!View::new_checked(&bytes).unwrap().checksum_valid(), "bit {bit}");
        }
    }

    #[test]
    fn not_emitted() {
        let header = Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, 8);
        let mut buffer = [0; 80];
        assert_eq!(header.emit(&mut buffer[..19]), Err(WireError::Truncated { need: 20, have: 19 }));
        let long = WireError::PacketLength { length: 65_516, have: 65_535 };
        assert_eq!(Header { payload_len: 65_516, ..header }.emit(&mut buffer), Err(long));
        assert_eq!(Header { payload_len: 65_515, ..header }.emit(&mut buffer), Ok(20));
        for options in [&[0; 3][..], &[0; 44]] {
            let length = WireError::HeaderLength { length: 20 + options.len(), have: 60 };
            assert_eq!(Header { options, ..header }.emit(&mut buffer), Err(length));
        }
        let offset = WireError::Field { name: "fragment offset", value: 0x2000 };
        assert_eq!(Header { fragment_offset: 0x2000, ..header }.emit(&mut buffer), Err(offset));
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            (tos, identification, df, mf, fragment_offset) in (any::<u8>(), any::<u16>(), any::<bool>(), any::<bool>(), 0u16..0x2000),
            (ttl, protocol, src, dst) in any::<(u8, u8, Ipv4Addr, Ipv4Addr)>(),
            words in proptest::collection::vec(any::<[u8; 4]>(), 0..=10),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let options = words.as_flattened();
            let header = Header {
                tos, payload_len: payload.len(), identification, dont_fragment: df, more_fragments: mf, fragment_offset,
                ttl, protocol, src, dst, options,
            };
            let mut bytes = vec![0xaa; 60];
            let length = header.emit(&mut bytes).unwrap();
            bytes.truncate(length);
            bytes.extend(&payload);
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!((view.header_len(), view.packet_len()), (length, length + payload.len()));
            prop_assert_eq!(view.payload(), &payload[..]);
            prop_assert!(view.checksum_valid());

            let (oracle, rest) = etherparse::Ipv4Header::from_slice(&bytes).unwrap();
            prop_assert_eq!(oracle.header_checksum, oracle.calc_header_checksum());
            prop_assert_eq!((oracle.source, oracle.destination), (src.octets(), dst.octets()));
            prop_assert_eq!((oracle.time_to_live, oracle.protocol.0), (ttl, protocol));
            prop_assert_eq!((oracle.dont_fragment, oracle.more_fragments, oracle.fragment_offset.value()), (df, mf, fragment_offset));
            prop_assert_eq!(oracle.options.as_slice(), options);
            prop_assert_eq!(rest, &payload[..]);
        }

        #[test]
        fn never_panics_and_agrees_with_the_oracle(mut bytes: Vec<u8>, likely: bool) {
            if likely && bytes.len() > 3 {
                bytes[0] = 0x45 + (bytes[0] & 1);
                bytes[2] = 0;
            }
            let view = View::new_checked(&bytes);
            prop_assert_eq!(view.is_ok(), etherparse::Ipv4Slice::from_slice(&bytes).is_ok());
            for view in [view, View::new_super_frame(&bytes), View::new_quoted(&bytes)].into_iter().flatten() {
                let header = view.header();
                let _ = (view.checksum_valid(), view.is_fragment());
                prop_assert_eq!(header.payload_len + view.header_len(), view.packet_len());
            }
        }
    }
}
