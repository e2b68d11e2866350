//! Ethernet II (IEEE 802.3-2022, 3.1.1, with the type interpretation of 3.2.6) and the recognition of VLAN tags.

use crate::WireError;
use crate::bytes::{array, be16, put, room, split};
use core::fmt;
use core::str::FromStr;

/// Bytes of an untagged header.
pub const HEADER_LEN: usize = 14;

/// Byte ranges in the header.
pub mod field {
    use core::ops::Range;
    /// Destination address.
    pub const DST: Range<usize> = 0..6;
    /// Source address.
    pub const SRC: Range<usize> = 6..12;
    /// EtherType, or below 0x600 the length of an IEEE 802.3 frame.
    pub const ETHERTYPE: Range<usize> = 12..14;
}

/// EtherTypes (IANA, "IEEE 802 Numbers").
pub mod ethertype {
    /// IPv4, RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// ARP, RFC 826.
    pub const ARP: u16 = 0x0806;
    /// Customer VLAN tag, IEEE 802.1Q-2022, 9.5.
    pub const VLAN: u16 = 0x8100;
    /// IPv6, RFC 2464.
    pub const IPV6: u16 = 0x86dd;
    /// Service VLAN tag (802.1ad), IEEE 802.1Q-2022, 9.5.
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// A MAC address. `Display` and `FromStr` use six pairs of hexadecimal digits with colons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All bits zero: no address.
    pub const ZERO: MacAddr = MacAddr([0; 6]);
    /// All bits one.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

    /// Whether the group bit is set, which includes broadcast; IEEE 802-2014, 8.2.2.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == MacAddr::BROADCAST
    }

    /// Whether one interface can own this address: not a group, not zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != MacAddr::ZERO
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddrError;

impl fmt::Display for MacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a MAC address: write six pairs of hexadecimal digits with colons, like 02:00:00:00:00:01",
        )
    }
}

impl core::error::Error for MacAddrError {}

impl FromStr for MacAddr {
    type Err = MacAddrError;

    fn from_str(text: &str) -> Result<MacAddr, MacAddrError> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().ok_or(MacAddrError)?;
            // from_str_radix alone would take "+1".
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacAddrError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| MacAddrError)?;
        }
        parts.next().map_or(Ok(MacAddr(octets)), |_| Err(MacAddrError))
    }
}

/// A frame with at least a whole header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of a frame without preamble and FCS.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 14 bytes.
    #[inline]
    pub fn new_checked(frame: &'a [u8]) -> Result<View<'a>, WireError> {
        let (head, payload) = split(frame)?;
        Ok(View { head, payload })
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array(self.head, field::DST))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array(self.head, field::SRC))
    }

    /// EtherType as it stands, which may be a tag's or, below 0x600, a length.
    #[inline]
    pub fn ethertype(&self) -> u16 {
        be16(self.head, field::ETHERTYPE)
    }

    /// Whether a customer or service VLAN tag follows the addresses.
    #[inline]
    pub fn is_vlan_tagged(&self) -> bool {
        matches!(self.ethertype(), ethertype::VLAN | ethertype::SERVICE_VLAN)
    }

    /// All behind the EtherType, with the padding of short frames.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's values.
    pub fn header(&self) -> Header {
        Header { dst: self.dst(), src: self.src(), ethertype: self.ethertype() }
    }
}

/// The values of an untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// EtherType.
    pub ethertype: u16,
}

impl Header {
    /// Writes the header and returns its 14 bytes' length.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let head = room(buffer, HEADER_LEN)?;
        put(head, field::DST, &self.dst.0);
        put(head, field::SRC, &self.src.0);
        put(head, field::ETHERTYPE, &self.ethertype.to_be_bytes());
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mac_text() {
        let mac: MacAddr = "02:00:5E:00:fa:01".parse().unwrap();
        assert_eq!(mac, MacAddr([2, 0, 0x5e, 0, 0xfa, 1]));
        assert_eq!(mac.to_string(), "02:00:5e:00:fa:01");
        for bad in [
            "",
            "02:00:5e:00:fa",
            "02:00:5e:00:fa:01:02",
            "2:0:5e:0:fa:1",
            "+2:00:5e:00:fa:01",
            "02-00-5e-00-fa-01",
            "02:00:5e:00:fa:0g",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacAddrError), "{bad}");
        }
    }

    #[test]
    fn mac_kinds() {
        let rows = [
            // address, multicast, broadcast, unicast
            ("ff:ff:ff:ff:ff:ff", true, true, false),
            ("33:33:00:00:00:01", true, false, false),
            ("01:00:5e:00:00:01", true, false, false),
            ("02:00:00:00:00:01", false, false, true),
            ("00:00:00:00:00:00", false, false, false),
        ];
        for (text, multicast, broadcast, unicast) in rows {
            let mac: MacAddr = text.parse().unwrap();
            assert_eq!(
                (mac.is_multicast(), mac.is_broadcast(), mac.is_unicast()),
                (multicast, broadcast, unicast),
                "{text}"
            );
        }
    }

    #[test]
    fn tags_are_recognised() {
        for (ethertype, tagged) in
            [(0x8100, true), (0x88a8, true), (0x0800, false), (0x86dd, false), (0x0806, false)]
        {
            let mut frame = [0; 18];
            Header { dst: MacAddr::BROADCAST, src: MacAddr::ZERO, ethertype }.emit(&mut frame).unwrap();
            assert_eq!(View::new_checked(&frame).unwrap().is_vlan_tagged(), tagged, "{ethertype:#x}");
        }
    }

    #[test]
    fn truncated() {
        assert_eq!(View::new_checked(&[0; 13]).unwrap_err(), WireError::Truncated { need: 14, have: 13 });
        let header = Header { dst: MacAddr::ZERO, src: MacAddr::ZERO, ethertype: 0 };
        assert_eq!(header.emit(&mut [0; 13]), Err(WireError::Truncated { need: 14, have: 13 }));
    }

    proptest! {
        #[test]
        fn emitted_reads_back(dst: [u8; 6], src: [u8; 6], ethertype: u16, payload: Vec<u8>) {
            let header = Header { dst: MacAddr(dst), src: MacAddr(src), ethertype };
            let mut frame = vec![0; HEADER_LEN];
            prop_assert_eq!(header.emit(&mut frame), Ok(HEADER_LEN));
            frame.extend(&payload);
            let view = View::new_checked(&frame).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.payload(), &payload[..]);
            let (oracle, _) = etherparse::Ethernet2Header::from_slice(&frame).unwrap();
            prop_assert_eq!((oracle.destination, oracle.source, oracle.ether_type.0), (dst, src, ethertype));
        }

        #[test]
        fn mac_text_reads_back(octets: [u8; 6]) {
            prop_assert_eq!(MacAddr(octets).to_string().parse(), Ok(MacAddr(octets)));
        }

        #[test]
        fn mac_text_never_panics(text: String) {
            let _ = text.parse::<MacAddr>();
        }
    }
}
