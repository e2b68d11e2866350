//! ARP for IPv4 over Ethernet, RFC 826.

use crate::WireError;
use crate::bytes::{array, be16, put, room, split};
use crate::ethernet::{MacAddr, ethertype};
use core::net::Ipv4Addr;

/// Bytes of a packet for Ethernet and IPv4.
pub const PACKET_LEN: usize = 28;

/// Byte ranges in the packet, in the words of RFC 826.
pub mod field {
    use core::ops::Range;
    /// Hardware type (`ar$hrd`).
    pub const HARDWARE: Range<usize> = 0..2;
    /// Protocol type (`ar$pro`).
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Lengths of hardware and protocol addresses (`ar$hln`, `ar$pln`).
    pub const LENGTHS: Range<usize> = 4..6;
    /// Operation (`ar$op`).
    pub const OPERATION: Range<usize> = 6..8;
    /// Sender hardware address (`ar$sha`).
    pub const SENDER_MAC: Range<usize> = 8..14;
    /// Sender protocol address (`ar$spa`).
    pub const SENDER_IP: Range<usize> = 14..18;
    /// Target hardware address (`ar$tha`).
    pub const TARGET_MAC: Range<usize> = 18..24;
    /// Target protocol address (`ar$tpa`).
    pub const TARGET_IP: Range<usize> = 24..28;
}

const HARDWARE_ETHERNET: u16 = 1;
const LENGTHS_ETHERNET_IPV4: u16 = 0x0604;

/// What the packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `ares_op$REQUEST`
    Request = 1,
    /// `ares_op$REPLY`
    Reply = 2,
}

/// A request or reply for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    packet: &'a [u8; PACKET_LEN],
    operation: Operation,
}

impl<'a> View<'a> {
    /// A view of the payload of an Ethernet frame; padding behind the packet is ignored.
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 28 bytes; [`WireError::Field`] for other hardware, protocols, address lengths or operations.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (packet, _) = split(bytes)?;
        let expect = |field, name, expected| match be16(packet, field) {
            value if value == expected => Ok(()),
            value => Err(WireError::Field { name, value: u32::from(value) }),
        };
        expect(field::HARDWARE, "ARP hardware type", HARDWARE_ETHERNET)?;
        expect(field::PROTOCOL, "ARP protocol type", ethertype::IPV4)?;
        expect(field::LENGTHS, "ARP address lengths", LENGTHS_ETHERNET_IPV4)?;
        let operation = match be16(packet, field::OPERATION) {
            1 => Operation::Request,
            2 => Operation::Reply,
            value => return Err(WireError::Field { name: "ARP operation", value: u32::from(value) }),
        };
        Ok(View { packet, operation })
    }

    /// Request or reply.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Sender hardware address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, field::SENDER_MAC))
    }

    /// Sender protocol address; unspecified in a probe (RFC 5227, 1.1).
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        array::<4>(self.packet, field::SENDER_IP).into()
    }

    /// Target hardware address; without meaning in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array(self.packet, field::TARGET_MAC))
    }

    /// Target protocol address.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        array::<4>(self.packet, field::TARGET_IP).into()
    }

    /// The packet's values.
    pub fn packet(&self) -> Packet {
        Packet {
            operation: self.operation(),
            sender_mac: self.sender_mac(),
            sender_ip: self.sender_ip(),
            target_mac: self.target_mac(),
            target_ip: self.target_ip(),
        }
    }
}

/// The values of a packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Request or reply.
    pub operation: Operation,
    /// Sender hardware address.
    pub sender_mac: MacAddr,
    /// Sender protocol address.
    pub sender_ip: Ipv4Addr,
    /// Target hardware address.
    pub target_mac: MacAddr,
    /// Target protocol address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// The answer that `mac` gives to this request for its address: sender and target exchanged. RFC 826, "Packet Reception".
    #[must_use]
    pub fn reply(&self, mac: MacAddr) -> Packet {
        Packet {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Writes the packet and returns its length, 28.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let packet = room(buffer, PACKET_LEN)?;
        put(packet, field::HARDWARE, &HARDWARE_ETHERNET.to_be_bytes());
        put(packet, field::PROTOCOL, &ethertype::IPV4.to_be_bytes());
        put(packet, field::LENGTHS, &LENGTHS_ETHERNET_IPV4.to_be_bytes());
        put(packet, field::OPERATION, &(self.operation as u16).to_be_bytes());
        put(packet, field::SENDER_MAC, &self.sender_mac.0);
        put(packet, field::SENDER_IP, &self.sender_ip.octets());
        put(packet, field::TARGET_MAC, &self.target_mac.0);
        put(packet, field::TARGET_IP, &self.target_ip.octets());
        Ok(PACKET_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: [u8; 28] = [
        0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, 6, 4, request
        2, 0, 0, 0, 0, 1, 10, 0, 0, 1, // sender
        0, 0, 0, 0, 0, 0, 10, 0, 0, 2, // target
    ];

    #[test]
    fn request_and_its_reply() {
        let request = View::new_checked(&REQUEST).unwrap().packet();
        assert_eq!(request.sender_ip, Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(request.target_ip, Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(request.sender_mac, MacAddr([2, 0, 0, 0, 0, 1]));
        let reply = request.reply(MacAddr([2, 0, 0, 0, 0, 2]));
        let mut bytes = [0; 28];
        reply.emit(&mut bytes).unwrap();
        #[rustfmt::skip]
        let expected = [
            0, 1, 8, 0, 6, 4, 0, 2,
            2, 0, 0, 0, 0, 2, 10, 0, 0, 2,
            2, 0, 0, 0, 0, 1, 10, 0, 0, 1,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn refused() {
        let rows: [(&str, usize, u8); 6] = [
            ("ARP hardware type", 1, 6),
            ("ARP protocol type", 2, 0x86),
            ("ARP address lengths", 4, 8),
            ("ARP address lengths", 5, 16),
            ("ARP operation", 7, 0),
            ("ARP operation", 7, 3),
        ];
        for (expected, at, value) in rows {
            let mut bytes = REQUEST;
            bytes[at] = value;
            match View::new_checked(&bytes) {
                Err(WireError::Field { name, .. }) => assert_eq!(name, expected),
                other => panic!("{expected}: {other:?}"),
            }
        }
        assert_eq!(
            View::new_checked(&REQUEST[..27]).unwrap_err(),
            WireError::Truncated { need: 28, have: 27 }
        );
    }

    proptest! {
        #[test]
        fn emitted_reads_back(reply: bool, sender_mac: [u8; 6], sender_ip: Ipv4Addr, target_mac: [u8; 6], target_ip: Ipv4Addr) {
            let operation = if reply { Operation::Reply } else { Operation::Request };
            let (sender_mac, target_mac) = (MacAddr(sender_mac), MacAddr(target_mac));
            let packet = Packet { operation, sender_mac, sender_ip, target_mac, target_ip };
            let mut bytes = [0; PACKET_LEN];
            prop_assert_eq!(packet.emit(&mut bytes), Ok(PACKET_LEN));
            prop_assert_eq!(View::new_checked(&bytes).unwrap().packet(), packet);
            let oracle = etherparse::ArpPacketSlice::from_slice(&bytes).unwrap();
            prop_assert_eq!(oracle.operation().0, operation as u16);
            prop_assert_eq!((oracle.sender_hw_addr(), oracle.target_hw_addr()), (&sender_mac.0[..], &target_mac.0[..]));
            prop_assert_eq!(oracle.sender_protocol_addr(), &sender_ip.octets()[..]);
            prop_assert_eq!(oracle.target_protocol_addr(), &target_ip.octets()[..]);
        }

        #[test]
        fn never_panics(bytes: Vec<u8>) {
            if let Ok(view) = View::new_checked(&bytes) {
                let _ = view.packet();
            }
        }
    }
}
