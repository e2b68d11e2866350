//! What IPv4 and IPv6 have in common: protocol numbers and one 128-bit form for both kinds of address.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Assigned Internet protocol numbers (IANA, "Protocol Numbers"), as far as they are used by name.
pub mod protocol {
    /// IPv6 hop-by-hop options, RFC 8200 (4.3).
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4, RFC 792.
    pub const ICMP: u8 = 1;
    /// IGMP, RFC 3376.
    pub const IGMP: u8 = 2;
    /// TCP, RFC 9293.
    pub const TCP: u8 = 6;
    /// UDP, RFC 768.
    pub const UDP: u8 = 17;
    /// IPv6 routing header, RFC 8200 (4.4).
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header, RFC 8200 (4.5).
    pub const FRAGMENT: u8 = 44;
    /// GRE, RFC 2784.
    pub const GRE: u8 = 47;
    /// Encapsulating security payload, RFC 4303.
    pub const ESP: u8 = 50;
    /// Authentication header, RFC 4302.
    pub const AH: u8 = 51;
    /// ICMP for IPv6, RFC 4443.
    pub const ICMPV6: u8 = 58;
    /// IPv6 no next header, RFC 8200 (4.7).
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options, RFC 8200 (4.6).
    pub const DESTINATION_OPTIONS: u8 = 60;
    /// SCTP, RFC 9260.
    pub const SCTP: u8 = 132;
}

/// The upper 96 bits of every IPv4-mapped IPv6 address, `::ffff:0:0/96`, RFC 4291 (2.5.5.2).
pub const V4_MAPPED: u128 = 0xffff << 32;

/// An IPv4 address in its IPv4-mapped form, RFC 4291 (2.5.5.2).
#[inline]
pub const fn map_v4(address: Ipv4Addr) -> u128 {
    V4_MAPPED | address.to_bits() as u128
}

/// Whether the 128 bits are an IPv4-mapped address.
#[inline]
pub const fn is_v4(address: u128) -> bool {
    address >> 32 == V4_MAPPED >> 32
}

/// An address of either kind as 128 bits; IPv4 in its mapped form.
#[inline]
pub const fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => map_v4(v4),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The inverse of [`to_bits`]; mapped addresses come out as IPv4.
#[inline]
pub const fn from_bits(address: u128) -> IpAddr {
    if is_v4(address) {
        IpAddr::V4(Ipv4Addr::from_bits(address as u32))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_the_round_trip() {
        for text in ["10.1.2.3", "0.0.0.0", "255.255.255.255", "::", "::1", "::10.1.2.3", "fd00::1:ffff"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(from_bits(to_bits(address)), address, "{text}");
            assert_eq!(is_v4(to_bits(address)), address.is_ipv4(), "{text}");
        }
        assert_eq!(
            map_v4(Ipv4Addr::new(10, 0, 0, 1)),
            "::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().to_bits()
        );
    }
}
