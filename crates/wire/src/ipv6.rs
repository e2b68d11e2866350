//! IPv6 and its extension headers, RFC 8200.

use crate::WireError;
use crate::bytes::{array, be16, be32, put, room, split};
use crate::ip::protocol;
use core::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Extension headers that [`View::upper_layer`] walks at most.
pub const MAX_EXTENSION_HEADERS: usize = 8;
/// Bytes of a fragment header, RFC 8200 (4.5).
pub const FRAGMENT_LEN: usize = 8;

/// Byte ranges in the fixed header, RFC 8200 (3).
pub mod field {
    use core::ops::Range;
    /// Version, traffic class and flow label.
    pub const VERSION_CLASS_LABEL: Range<usize> = 0..4;
    /// Bytes behind the fixed header.
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    /// Type of the header behind.
    pub const NEXT_HEADER: usize = 6;
    /// Hop limit.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SRC: Range<usize> = 8..24;
    /// Destination address.
    pub const DST: Range<usize> = 24..40;
}

const FLOW_LABEL: u32 = 0xf_ffff;

/// How the payload length is held against the bytes there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    SuperFrame,
    Quoted,
}

/// A packet whose payload length fits the bytes.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of the payload of a frame; bytes behind the payload length are padding and left out.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 40 bytes, [`WireError::Field`] for another version, [`WireError::PacketLength`] when the
    /// packet is longer than the bytes.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::Whole)
    }

    /// The same for a GSO super-frame, whose payload length may be 0: then all the bytes belong to it.
    ///
    /// # Errors
    /// As [`View::new_checked`].
    #[inline]
    pub fn new_super_frame(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::SuperFrame)
    }

    /// The same for the beginning of a packet that an ICMPv6 error quotes: the payload length may say more than is there.
    /// RFC 4443 (2.4 c).
    ///
    /// # Errors
    /// As [`View::new_checked`], without the one about the payload length.
    #[inline]
    pub fn new_quoted(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        View::check(bytes, Extent::Quoted)
    }

    #[inline]
    fn check(bytes: &'a [u8], extent: Extent) -> Result<View<'a>, WireError> {
        let (head, rest) = split::<HEADER_LEN>(bytes)?;
        let version = head[0] >> 4;
        if version != 6 {
            return Err(WireError::Field { name: "IP version", value: u32::from(version) });
        }
        let length = usize::from(be16(head, field::PAYLOAD_LENGTH));
        let payload = match extent {
            Extent::Quoted => &rest[..rest.len().min(length)],
            Extent::SuperFrame if length == 0 => rest,
            _ => rest
                .get(..length)
                .ok_or(WireError::PacketLength { length: HEADER_LEN + length, have: bytes.len() })?,
        };
        Ok(View { head, payload })
    }

    /// Bytes of header and payload together, as far as they are there.
    #[inline]
    pub fn packet_len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (be32(self.head, field::VERSION_CLASS_LABEL) >> 20) as u8
    }

    /// Flow label, 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        be32(self.head, field::VERSION_CLASS_LABEL) & FLOW_LABEL
    }

    /// Type of the first header behind the fixed one; see [`View::upper_layer`] for the last.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.head[field::NEXT_HEADER]
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.head[field::HOP_LIMIT]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        array::<16>(self.head, field::SRC).into()
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        array::<16>(self.head, field::DST).into()
    }

    /// All behind the fixed header, extension headers included, without the frame's padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            payload_len: self.payload.len(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            src: self.src(),
            dst: self.dst(),
        }
    }

    /// Walks the extension headers to the upper layer. Of a fragment that is not the whole packet only the headers in front
    /// of the fragment header are walked, since what follows them may lie in another fragment.
    ///
    /// # Errors
    /// [`WireError::Extension`] when a header is cut short, hop-by-hop options are not first (RFC 8200, 4.1), a routing header of
    /// the withdrawn type 0 still has segments to visit (RFC 5095, 3), or there are more than [`MAX_EXTENSION_HEADERS`].
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, WireError> {
        let mut upper = UpperLayer { protocol: self.next_header(), offset: HEADER_LEN, fragment: None };
        // Without extension headers, as nearly always, this is all.
        if matches!(upper.protocol, protocol::TCP | protocol::UDP | protocol::ICMPV6) {
            return Ok(upper);
        }
        for walked in 0..=MAX_EXTENSION_HEADERS {
            let error = WireError::Extension { offset: upper.offset };
            let header = self.payload.get(upper.offset - HEADER_LEN..).unwrap_or_default();
            let units = |unit: usize| header.get(1).map(|&length| unit * usize::from(length));
            let length = match upper.protocol {
                protocol::HOP_BY_HOP if walked > 0 => return Err(error),
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => units(8).map(|length| length + 8),
                // Type and segments left follow the length: RFC 8200 (4.4).
                protocol::ROUTING if matches!(header.get(2..4), Some([0, left]) if *left > 0) => {
                    return Err(error);
                }
                protocol::ROUTING => units(8).map(|length| length + 8),
                // In units of 4, not counting the first 8: RFC 4302 (2.2).
                protocol::AH => units(4).map(|length| length + 8),
                protocol::FRAGMENT => {
                    let fragment = Fragment::read(header).ok_or(error)?;
                    upper.fragment = Some(fragment);
                    if !fragment.is_atomic() {
                        return Ok(upper);
                    }
                    Some(FRAGMENT_LEN)
                }
                _ => return Ok(upper),
            };
            match length {
                Some(length) if length <= header.len() && walked < MAX_EXTENSION_HEADERS => {
                    upper.protocol = header[0];
                    upper.offset += length;
                }
                _ => return Err(error),
            }
        }
        Err(WireError::Extension { offset: upper.offset })
    }
}

/// Where the extension headers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpperLayer {
    /// Protocol number of what is there; [`protocol::FRAGMENT`] where the walk ended at a fragment.
    pub protocol: u8,
    /// Where it begins, in bytes from the IPv6 header.
    pub offset: usize,
    /// The fragment header, when there was one.
    pub fragment: Option<Fragment>,
}

/// The values of a fragment header, RFC 8200 (4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Type of the first header of the fragmentable part.
    pub next_header: u8,
    /// In units of 8 bytes.
    pub offset: u16,
    /// This is not the last fragment.
    pub more: bool,
    /// Identification of the packet.
    pub identification: u32,
}

impl Fragment {
    /// The header at the beginning of the bytes.
    fn read(bytes: &[u8]) -> Option<Fragment> {
        let header: &[u8; FRAGMENT_LEN] = bytes.first_chunk()?;
        let offset = be16(header, 2..4);
        Some(Fragment {
            next_header: header[0],
            offset: offset >> 3,
            more: offset & 1 != 0,
            identification: be32(header, 4..8),
        })
    }

    /// Whether the "fragment" is the whole packet, RFC 6946 (2).
    #[inline]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// The values of the fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind the header.
    pub payload_len: usize,
    /// Type of the header behind.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Header {
    /// A header with traffic class and flow label 0 and hop limit 64.
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload_len: usize) -> Header {
        Header { traffic_class: 0, flow_label: 0, payload_len, next_header, hop_limit: 64, src, dst }
    }

    /// Writes the header and returns its length, 40.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short, [`WireError::PacketLength`] for a payload above 65,535 bytes,
    /// [`WireError::Field`] for a flow label above 20 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let length = u16::try_from(self.payload_len)
            .map_err(|_| WireError::PacketLength { length: self.payload_len, have: usize::from(u16::MAX) })?;
        if self.flow_label > FLOW_LABEL {
            return Err(WireError::Field { name: "flow label", value: self.flow_label });
        }
        let header = room(buffer, HEADER_LEN)?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        put(header, field::VERSION_CLASS_LABEL, &first.to_be_bytes());
        put(header, field::PAYLOAD_LENGTH, &length.to_be_bytes());
        header[field::NEXT_HEADER] = self.next_header;
        header[field::HOP_LIMIT] = self.hop_limit;
        put(header, field::SRC, &self.src.octets());
        put(header, field::DST, &self.dst.octets());
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        let ends = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        Header::new(ends.0, ends.1, next_header, payload.len()).emit(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    /// An options header (or a routing header of type 4 without segments) of `units + 1` times 8 bytes.
    fn options(next: u8, units: u8) -> Vec<u8> {
        let mut bytes = vec![next, units, 4, 0];
        bytes.resize(8 * (usize::from(units) + 1), 0);
        bytes
    }

    #[test]
    fn refused() {
        let good = packet(59, &[0; 8]);
        assert_eq!(View::new_checked(&good[..39]).unwrap_err(), WireError::Truncated { need: 40, have: 39 });
        assert_eq!(
            View::new_checked(&good[..47]).unwrap_err(),
            WireError::PacketLength { length: 48, have: 47 }
        );
        let mut four = good.clone();
        four[0] = 0x40;
        assert_eq!(View::new_checked(&four).unwrap_err(), WireError::Field { name: "IP version", value: 4 });
    }

    #[test]
    fn padding_super_frames_and_quotes() {
        let mut bytes = packet(17, &[1; 8]);
        assert_eq!(View::new_quoted(&bytes[..44]).unwrap().payload().len(), 4);
        bytes.extend([0; 4]);
        assert_eq!(View::new_checked(&bytes).unwrap().payload().len(), 8);
        bytes[5] = 0;
        assert_eq!(View::new_checked(&bytes).unwrap().payload().len(), 0);
        assert_eq!(View::new_super_frame(&bytes).unwrap().payload().len(), 12);
    }

    #[test]
    fn extension_headers_are_walked() {
        let atomic = [6, 0, 0, 0, 0, 0, 0, 9];
        let ah = [17, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let rows: [(&str, u8, Vec<u8>, u8, usize); 7] = [
            // name, next header, payload in front of the upper layer, protocol, offset
            ("none", 6, vec![], 6, 40),
            ("no next header", 59, vec![], 59, 40),
            ("hop-by-hop", 0, options(17, 0), 17, 48),
            (
                "hop-by-hop, destination, routing",
                0,
                [options(60, 1), options(43, 2), options(58, 0)].concat(),
                58,
                88,
            ),
            ("AH", 51, ah.to_vec(), 17, 64),
            ("atomic fragment", 44, atomic.to_vec(), 6, 48),
            ("ESP ends the walk", 0, options(50, 0), 50, 48),
        ];
        for (name, next, mut payload, protocol, offset) in rows {
            payload.extend([0; 20]);
            let bytes = packet(next, &payload);
            let upper = View::new_checked(&bytes).unwrap().upper_layer().unwrap();
            assert_eq!((upper.protocol, upper.offset), (protocol, offset), "{name}");
        }
    }

    #[test]
    fn fragments_end_the_walk() {
        let bytes = packet(44, &[6, 0, 0x12, 0x39, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3]);
        let upper = View::new_checked(&bytes).unwrap().upper_layer().unwrap();
        assert_eq!((upper.protocol, upper.offset), (protocol::FRAGMENT, 40));
        let fragment = Fragment { next_header: 6, offset: 0x247, more: true, identification: 0xdead_beef };
        assert_eq!(upper.fragment, Some(fragment));
        assert!(!fragment.is_atomic());
        assert!(!Fragment { offset: 0, ..fragment }.is_atomic());
        assert!(!Fragment { more: false, ..fragment }.is_atomic());
    }

    #[test]
    fn bad_chains() {
        let eight =
            |last| (0..8).flat_map(|i| options(if i == 7 { last } else { 60 }, 0)).collect::<Vec<_>>();
        let rows: [(&str, u8, Vec<u8>, usize); 8] = [
            ("no byte of a header", 60, vec![], 40),
            ("one byte of a header", 60, vec![17], 40),
            ("cut short", 60, options(17, 1)[..12].to_vec(), 40),
            ("second is cut short", 0, [options(60, 0), vec![17, 0, 0, 0]].concat(), 48),
            ("hop-by-hop second", 60, [options(0, 0), options(17, 0)].concat(), 48),
            ("fragment header cut short", 44, vec![6, 0, 0, 0, 0, 0, 0], 40),
            (
                "routing type 0 with segments left",
                43,
                vec![6, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                40,
            ),
            ("nine headers", 60, [eight(60), options(17, 0)].concat(), 104),
        ];
        for (name, next, payload, offset) in rows {
            let bytes = packet(next, &payload);
            let result = View::new_checked(&bytes).unwrap().upper_layer();
            assert_eq!(result, Err(WireError::Extension { offset }), "{name}");
        }
        let bytes = packet(60, &eight(17));
        assert_eq!(View::new_checked(&bytes).unwrap().upper_layer().unwrap().offset, 104, "eight headers");
    }

    #[test]
    fn not_emitted() {
        let header = View::new_checked(&packet(6, &[])).unwrap().header();
        let mut buffer = [0; 40];
        assert_eq!(header.emit(&mut buffer[..39]), Err(WireError::Truncated { need: 40, have: 39 }));
        let long = WireError::PacketLength { length: 65_536, have: 65_535 };
        assert_eq!(Header { payload_len: 65_536, ..header }.emit(&mut buffer), Err(long));
        let label = WireError::Field { name: "flow label", value: 0x10_0000 };
        assert_eq!(Header { flow_label: 0x10_0000, ..header }.emit(&mut buffer), Err(label));
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            (traffic_class, flow_label, next_header, hop_limit) in (any::<u8>(), 0u32..0x10_0000, any::<u8>(), any::<u8>()),
            src: Ipv6Addr, dst: Ipv6Addr,
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let header = Header { traffic_class, flow_label, payload_len: payload.len(), next_header, hop_limit, src, dst };
            let mut bytes = vec![0xaa; 40];
            prop_assert_eq!(header.emit(&mut bytes), Ok(40));
            bytes.extend(&payload);
            let view = View::new_checked(&bytes).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);

            let (oracle, _) = etherparse::Ipv6Header::from_slice(&bytes).unwrap();
            prop_assert_eq!((oracle.source_addr(), oracle.destination_addr()), (src, dst));
            prop_assert_eq!((oracle.traffic_class, oracle.flow_label.value()), (traffic_class, flow_label));
            prop_assert_eq!((oracle.next_header.0, oracle.hop_limit), (next_header, hop_limit));
        }

        #[test]
        fn walking_never_panics_and_stays_inside(
            first in prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60), any::<u8>()],
            chain in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(43), Just(44), Just(51), Just(60), any::<u8>()], 0..120),
        ) {
            let bytes = packet(first, &chain);
            let view = View::new_checked(&bytes).unwrap();
            if let Ok(upper) = view.upper_layer() {
                prop_assert!(upper.offset <= bytes.len());
            }
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            for view in [View::new_checked(&bytes), View::new_super_frame(&bytes), View::new_quoted(&bytes)].into_iter().flatten() {
                let _ = (view.header(), view.upper_layer());
            }
        }
    }
}
