//! Neighbor discovery for IPv6: solicitations and advertisements of neighbors, RFC 4861.

use crate::WireError;
use crate::bytes::{array, be32, put, room, split};
use crate::ethernet::MacAddr;
use crate::icmpv6::{self, kind};
use core::net::Ipv6Addr;

/// Bytes of a message without options.
pub const MESSAGE_LEN: usize = 24;
/// Bytes of a link-layer address option for Ethernet, RFC 4861 (4.6.1).
pub const LINK_LAYER_OPTION_LEN: usize = 8;
/// The hop limit of every valid message: none has crossed a router. RFC 4861 (7.1).
pub const HOP_LIMIT: u8 = 255;

/// Byte ranges in the message, RFC 4861 (4.3, 4.4).
pub mod field {
    use core::ops::Range;
    /// Target address.
    pub const TARGET: Range<usize> = 8..24;
}

/// Flags of an advertisement, the first byte of the header's rest. RFC 4861 (4.4).
pub mod flags {
    /// The sender is a router.
    pub const ROUTER: u8 = 0x80;
    /// The answer to a solicitation.
    pub const SOLICITED: u8 = 0x40;
    /// Replaces what is cached.
    pub const OVERRIDE: u8 = 0x20;
}

const OPTION_SOURCE_LINK_LAYER: u8 = 1;
const OPTION_TARGET_LINK_LAYER: u8 = 2;

/// The multicast address that solicitations for this address are sent to, RFC 4291 (2.7.1).
#[inline]
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | address.to_bits() & 0xff_ffff)
}

/// The MAC address that IPv6 multicast is sent to, RFC 2464 (7).
#[inline]
pub const fn multicast_mac(address: Ipv6Addr) -> MacAddr {
    let octets = address.octets();
    MacAddr([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]])
}

/// A solicitation or advertisement that is valid in itself.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    message: &'a [u8; MESSAGE_LEN],
    link_layer: Option<usize>,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// A view of an ICMPv6 message, held to what RFC 4861 (7.1.1, 7.1.2) asks of the message itself. See
    /// [`View::is_valid_between`] for what it asks of the packet, and [`icmpv6::View::checksum_valid`].
    ///
    /// # Errors
    /// [`WireError::Truncated`] below 24 bytes; [`WireError::Field`] for another type, a code that is not 0 or a multicast target;
    /// [`WireError::HeaderLength`] for an option that is empty or longer than the message.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<View<'a>, WireError> {
        let (message, options) = split::<MESSAGE_LEN>(bytes)?;
        let wanted = match message[icmpv6::field::TYPE] {
            kind::NEIGHBOR_SOLICITATION => OPTION_SOURCE_LINK_LAYER,
            kind::NEIGHBOR_ADVERTISEMENT => OPTION_TARGET_LINK_LAYER,
            value => return Err(WireError::Field { name: "ND type", value: u32::from(value) }),
        };
        let code = message[icmpv6::field::CODE];
        if code != 0 {
            return Err(WireError::Field { name: "ND code", value: u32::from(code) });
        }
        if message[field::TARGET.start] == 0xff {
            return Err(WireError::Field { name: "ND target", value: be32(message, field::TARGET) });
        }
        let mut link_layer = None;
        let mut rest = options;
        while !rest.is_empty() {
            let units = rest.get(1).map_or(0, |&units| usize::from(units));
            if units == 0 || 8 * units > rest.len() {
                return Err(WireError::HeaderLength { length: 8 * units, have: rest.len() });
            }
            if rest[0] == wanted && 8 * units == LINK_LAYER_OPTION_LEN {
                link_layer = Some(bytes.len() - rest.len() + 2);
            }
            rest = &rest[8 * units..];
        }
        Ok(View { message, link_layer, bytes })
    }

    /// Whether the packet around the message is as RFC 4861 (7.1.1, 7.1.2) asks: hop limit 255; a solicitation from the unspecified
    /// address goes to a solicited-node address and has no link-layer address; an advertisement to a group is not "solicited".
    #[inline]
    pub fn is_valid_between(&self, src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8) -> bool {
        let sound = if self.is_solicitation() {
            !src.is_unspecified() || self.link_layer.is_none() && solicited_node(dst) == dst
        } else {
            !dst.is_multicast() || self.flags() & flags::SOLICITED == 0
        };
        hop_limit == HOP_LIMIT && sound
    }

    /// Solicitation, or else advertisement.
    #[inline]
    pub fn is_solicitation(&self) -> bool {
        self.message[icmpv6::field::TYPE] == kind::NEIGHBOR_SOLICITATION
    }

    /// Flags of an advertisement, see [`flags`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.message[icmpv6::field::REST.start]
    }

    /// The address asked for, or advertised.
    #[inline]
    pub fn target(&self) -> Ipv6Addr {
        array::<16>(self.message, field::TARGET).into()
    }

    /// Where the link-layer address lies, in bytes from the beginning of the message: the source's of a solicitation, the target's
    /// of an advertisement. Of several, the last counts.
    #[inline]
    pub fn link_layer_offset(&self) -> Option<usize> {
        self.link_layer
    }

    /// The link-layer address itself.
    #[inline]
    pub fn link_layer(&self) -> Option<MacAddr> {
        self.link_layer.map(|at| MacAddr(array(self.bytes, at..at + 6)))
    }

    /// The message's values.
    pub fn message(&self) -> Message {
        let (target, link_layer) = (self.target(), self.link_layer());
        if self.is_solicitation() {
            Message::Solicitation { target, link_layer }
        } else {
            Message::Advertisement { flags: self.flags(), target, link_layer }
        }
    }
}

/// The values of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// RFC 4861 (4.3)
    Solicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// The sender's link-layer address.
        link_layer: Option<MacAddr>,
    },
    /// RFC 4861 (4.4)
    Advertisement {
        /// See [`flags`].
        flags: u8,
        /// The address advertised.
        target: Ipv6Addr,
        /// Its link-layer address.
        link_layer: Option<MacAddr>,
    },
}

impl Message {
    /// Bytes that [`Message::emit`] writes.
    pub const fn emit_len(&self) -> usize {
        let (Message::Solicitation { link_layer, .. } | Message::Advertisement { link_layer, .. }) = self;
        MESSAGE_LEN + if link_layer.is_some() { LINK_LAYER_OPTION_LEN } else { 0 }
    }

    /// Writes the ICMPv6 message with the checksum for these addresses, and returns its length.
    ///
    /// # Errors
    /// [`WireError::Truncated`] when the buffer is too short.
    pub fn emit(&self, buffer: &mut [u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<usize, WireError> {
        let message = room(buffer, self.emit_len())?;
        let (kind, flags, option, target, link_layer) = match *self {
            Message::Solicitation { target, link_layer } => {
                (kind::NEIGHBOR_SOLICITATION, 0, OPTION_SOURCE_LINK_LAYER, target, link_layer)
            }
            Message::Advertisement { flags, target, link_layer } => {
                (kind::NEIGHBOR_ADVERTISEMENT, flags, OPTION_TARGET_LINK_LAYER, target, link_layer)
            }
        };
        put(message, field::TARGET, &target.octets());
        if let Some(mac) = link_layer {
            put(message, 24..26, &[option, 1]);
            put(message, 26..32, &mac.0);
        }
        icmpv6::Header { kind, code: 0, rest: [flags, 0, 0, 0] }.finish(message, src, dst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn ip(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn solicitation(edit: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let message = Message::Solicitation { target: ip("fd00::2"), link_layer: Some(MAC) };
        let mut bytes = vec![0; message.emit_len()];
        message.emit(&mut bytes, ip("fd00::1"), solicited_node(ip("fd00::2"))).unwrap();
        edit(&mut bytes);
        bytes
    }

    #[test]
    fn derived_addresses() {
        // RFC 4291 (2.7.1): 4037::01:800:200E:8C6C has FF02::1:FF0E:8C6C.
        assert_eq!(solicited_node(ip("4037::01:800:200e:8c6c")), ip("ff02::1:ff0e:8c6c"));
        assert_eq!(multicast_mac(ip("ff02::1:ff0e:8c6c")), MacAddr([0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]));
    }

    #[test]
    fn a_solicitation() {
        let bytes = solicitation(|_| ());
        assert_eq!(bytes[24..], [1, 1, 2, 0, 0, 0, 0, 1]);
        let view = View::new_checked(&bytes).unwrap();
        assert!(view.is_solicitation());
        assert_eq!(
            (view.target(), view.link_layer(), view.link_layer_offset()),
            (ip("fd00::2"), Some(MAC), Some(26))
        );
        // A nonce in front (RFC 3971, 5.3.2), as Linux sends for duplicate address detection.
        let nonce = solicitation(|b| drop(b.splice(24..24, [14, 1, 1, 2, 3, 4, 5, 6])));
        assert_eq!(View::new_checked(&nonce).unwrap().link_layer_offset(), Some(34));
        // The other side's option says nothing about the sender.
        let target = solicitation(|b| b[24] = 2);
        assert_eq!(View::new_checked(&target).unwrap().link_layer(), None);
    }

    #[test]
    fn refused() {
        type Row = (&'static str, fn(&mut Vec<u8>), WireError);
        let rows: [Row; 6] = [
            ("too short", |b| b.truncate(23), WireError::Truncated { need: 24, have: 23 }),
            ("another type", |b| b[0] = 134, WireError::Field { name: "ND type", value: 134 }),
            ("code 1", |b| b[1] = 1, WireError::Field { name: "ND code", value: 1 }),
            ("multicast target", |b| b[8] = 0xff, WireError::Field { name: "ND target", value: 0xff00_0000 }),
            ("empty option", |b| b[25] = 0, WireError::HeaderLength { length: 0, have: 8 }),
            ("long option", |b| b[25] = 2, WireError::HeaderLength { length: 16, have: 8 }),
        ];
        for (name, edit, error) in rows {
            assert_eq!(View::new_checked(&solicitation(edit)).unwrap_err(), error, "{name}");
        }
        let cut = solicitation(|b| b.truncate(25));
        assert_eq!(View::new_checked(&cut).unwrap_err(), WireError::HeaderLength { length: 0, have: 1 });
    }

    #[test]
    fn packets_around() {
        let (a, any, group) = (ip("fd00::1"), Ipv6Addr::UNSPECIFIED, solicited_node(ip("fd00::2")));
        let all = ip("ff02::1");
        let advert = |flags| Message::Advertisement { flags, target: ip("fd00::2"), link_layer: Some(MAC) };
        let ask = |link_layer| Message::Solicitation { target: ip("fd00::2"), link_layer };
        let rows = [
            ("solicitation", ask(Some(MAC)), a, group, 255, true),
            ("unicast solicitation", ask(Some(MAC)), a, ip("fd00::2"), 255, true),
            ("crossed a router", ask(Some(MAC)), a, group, 254, false),
            ("duplicate address detection", ask(None), any, group, 255, true),
            ("unspecified with link-layer address", ask(Some(MAC)), any, group, 255, false),
            ("unspecified to unicast", ask(None), any, ip("fd00::2"), 255, false),
            ("unspecified to all nodes", ask(None), any, all, 255, false),
            ("solicited advertisement", advert(flags::SOLICITED), ip("fd00::2"), a, 255, true),
            ("unsolicited advertisement", advert(flags::OVERRIDE), ip("fd00::2"), all, 255, true),
            ("solicited to a group", advert(flags::SOLICITED), ip("fd00::2"), all, 255, false),
            ("advertisement from afar", advert(flags::SOLICITED), ip("fd00::2"), a, 64, false),
        ];
        for (name, message, src, dst, hop_limit, valid) in rows {
            let mut bytes = [0; 32];
            let length = message.emit(&mut bytes, src, dst).unwrap();
            let view = View::new_checked(&bytes[..length]).unwrap();
            assert_eq!(view.is_valid_between(src, dst, hop_limit), valid, "{name}");
        }
    }

    proptest! {
        #[test]
        fn emitted_reads_back(
            flags: u8, target: Ipv6Addr, mac: Option<[u8; 6]>, solicit: bool, src: Ipv6Addr, dst: Ipv6Addr,
        ) {
            prop_assume!(!target.is_multicast());
            let link_layer = mac.map(MacAddr);
            let message = if solicit {
                Message::Solicitation { target, link_layer }
            } else {
                Message::Advertisement { flags, target, link_layer }
            };
            let mut bytes = [0xaa; 32];
            let length = message.emit(&mut bytes, src, dst).unwrap();
            prop_assert_eq!(length, message.emit_len());
            let bytes = &bytes[..length];
            prop_assert_eq!(View::new_checked(bytes).unwrap().message(), message);
            prop_assert!(icmpv6::View::new_checked(bytes).unwrap().checksum_valid(src, dst));
            let oracle = etherparse::Icmpv6Slice::from_slice(bytes).unwrap();
            prop_assert!(oracle.is_checksum_valid(src.octets(), dst.octets()));
            prop_assert_eq!(message.emit(&mut [0; 32][..length - 1], src, dst), Err(WireError::Truncated { need: length, have: length - 1 }));
        }

        #[test]
        fn never_panics(solicit: bool, body: [u8; 22], options in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..64), src: Ipv6Addr) {
            let mut bytes = vec![if solicit { 135 } else { 136 }, 0];
            bytes.extend(body);
            bytes.extend(options);
            for end in 0..=bytes.len() {
                if let Ok(view) = View::new_checked(&bytes[..end]) {
                    let _ = (view.message(), view.is_valid_between(src, src, 255));
                }
            }
        }
    }
}
