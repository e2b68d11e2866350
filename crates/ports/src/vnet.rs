//! Virtio's header in front of each frame (virtio 1.2, 5.1.6), to and from a frame's metadata.
//!
//! On TAP and AF_PACKET its fields are in the byte order of the machine. The fields pass
//! untouched: whoever forwards a frame gives the kernel back what the kernel said.

use packet::{Checksum, Frame, GsoType};

/// Bytes of the header on AF_PACKET.
pub(crate) const VNET: usize = 10;
/// Bytes of the header on a TAP: two more, unused, so that the frame behind is aligned.
pub(crate) const VNET_MRG: usize = 12;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Reads the header that came with `frame` into its metadata. `None` when it contradicts itself or
/// the frame, or names a kind of super-frame that was not asked for.
///
/// `hdr_len` is corrected: the kernel gives the length of its own first piece of memory, which may
/// hold payload.
#[inline]
pub(crate) fn decode(header: &[u8; VNET], frame: &mut Frame) -> Option<()> {
    let field = |i: usize| u16::from_ne_bytes([header[i], header[i + 1]]);
    let (flags, gso, len) = (header[0], header[1], frame.len());
    let csum = if flags & NEEDS_CSUM != 0 {
        let (start, offset) = (field(6), field(8));
        if usize::from(start) + usize::from(offset) + 2 > len {
            return None;
        }
        Checksum::Partial { start, offset }
    } else if flags & DATA_VALID != 0 {
        Checksum::Verified
    } else {
        Checksum::None
    };
    let mut hdr_len = field(2);
    if gso != 0 {
        let kind = match gso & !GSO_ECN {
            GSO_TCPV4 => GsoType::TcpV4,
            GSO_TCPV6 => GsoType::TcpV6,
            GSO_UDP_L4 => GsoType::UdpL4,
            _ => return None,
        };
        if let Checksum::Partial { start, .. } = csum {
            let transport = match kind {
                GsoType::UdpL4 => 8,
                _ => u16::from(*frame.data().get(usize::from(start) + 12)? >> 4) * 4,
            };
            hdr_len = start.checked_add(transport)?;
        }
        if field(4) == 0 || usize::from(hdr_len) > len {
            return None;
        }
        let meta = frame.meta_mut();
        (meta.gso, meta.gso_ecn, meta.gso_size) = (kind, gso & GSO_ECN != 0, field(4));
    }
    let meta = frame.meta_mut();
    (meta.csum, meta.hdr_len) = (csum, hdr_len);
    Some(())
}

/// Puts a VLAN tag back in behind the MAC addresses (IEEE 802.1Q-2022, 9), and moves the offsets
/// that virtio's header gave. There are at least 4 bytes of headroom.
pub(crate) fn insert_vlan(frame: &mut Frame, tpid: u16, tci: u16) {
    const MACS: usize = 12;
    if frame.len() < MACS {
        return;
    }
    frame.prepend(4);
    let data = frame.data_mut();
    data.copy_within(4..4 + MACS, 0);
    data[MACS..MACS + 2].copy_from_slice(&tpid.to_be_bytes());
    data[MACS + 2..MACS + 4].copy_from_slice(&tci.to_be_bytes());
    let meta = frame.meta_mut();
    if let Checksum::Partial { start, .. } = &mut meta.csum {
        *start = start.saturating_add(4);
    }
    if meta.is_gso() {
        meta.hdr_len = meta.hdr_len.saturating_add(4);
    }
}

/// Writes the header for `frame`. `hdr_len` is where the parser found the payload, or else what the
/// frame came with.
#[inline]
pub(crate) fn encode(frame: &Frame) -> [u8; VNET] {
    let meta = frame.meta();
    let mut header = [0; VNET];
    match meta.csum {
        Checksum::None => {}
        Checksum::Verified => header[0] = DATA_VALID,
        Checksum::Partial { start, offset } => {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        }
    }
    if meta.is_gso() {
        header[1] = match meta.gso {
            GsoType::None => 0,
            GsoType::TcpV4 => GSO_TCPV4,
            GsoType::TcpV6 => GSO_TCPV6,
            GsoType::UdpL4 => GSO_UDP_L4,
        } | if meta.gso_ecn { GSO_ECN } else { 0 };
        let hdr_len = if meta.payload != 0 { meta.payload } else { meta.hdr_len };
        header[2..4].copy_from_slice(&hdr_len.to_ne_bytes());
        header[4..6].copy_from_slice(&meta.gso_size.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use packet::{LARGE, Pool};
    use proptest::prelude::*;

    use super::*;

    /// A header from its fields: flags, gso type, hdr_len, gso_size, csum_start, csum_offset.
    fn header(flags: u8, gso: u8, fields: [u16; 4]) -> [u8; VNET] {
        let mut header = [flags, gso, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in header[2..].chunks_exact_mut(2).zip(fields) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        header
    }

    /// A frame of `len` bytes that all say "a TCP header of 32 bytes".
    fn frame(pool: &mut Pool, len: usize) -> Frame {
        let mut frame = pool.alloc(len).unwrap();
        frame.data_mut().fill(0x80);
        frame
    }

    #[test]
    fn headers_of_the_kernel_pass_unchanged_but_for_hdr_len() {
        // name, header in, header out
        let rows = [
            ("plain", header(0, 0, [0; 4]), header(0, 0, [0; 4])),
            ("verified", header(2, 0, [0; 4]), header(2, 0, [0; 4])),
            ("partial", header(1, 0, [54, 0, 34, 16]), header(1, 0, [0, 0, 34, 16])),
            ("tcp4", header(1, 1, [66, 1448, 34, 16]), header(1, 1, [66, 1448, 34, 16])),
            ("tcp6, ecn", header(1, 0x84, [86, 1428, 54, 16]), header(1, 0x84, [86, 1428, 54, 16])),
            (
                "payload in the first piece",
                header(1, 1, [1000, 1448, 34, 16]),
                header(1, 1, [66, 1448, 34, 16]),
            ),
            ("udp", header(1, 5, [500, 1400, 34, 6]), header(1, 5, [42, 1400, 34, 6])),
            ("merged by the receiver", header(2, 1, [66, 1448, 0, 0]), header(2, 1, [66, 1448, 0, 0])),
        ];
        let mut pool = Pool::new(1, 1).unwrap();
        for (name, from, to) in rows {
            let mut frame = frame(&mut pool, 3000);
            assert_eq!(decode(&from, &mut frame), Some(()), "{name}");
            assert_eq!(encode(&frame), to, "{name}");
            pool.free(frame);
        }
    }

    #[test]
    fn the_parsers_payload_becomes_hdr_len() {
        let mut pool = Pool::new(1, 1).unwrap();
        let mut frame = frame(&mut pool, 3000);
        decode(&header(1, 1, [66, 1448, 34, 16]), &mut frame).unwrap();
        frame.meta_mut().payload = 70;
        assert_eq!(encode(&frame), header(1, 1, [70, 1448, 34, 16]));
        pool.free(frame);
    }

    #[test]
    fn contradictions_are_refused() {
        let rows = [
            ("checksum field behind the end", header(1, 0, [0, 0, 90, 9])),
            ("no segment size", header(1, 1, [66, 0, 34, 16])),
            ("UDP fragmentation", header(1, 3, [42, 1400, 34, 6])),
            ("a tunnel that was not asked for", header(1, 0x21, [66, 1448, 34, 16])),
            ("headers behind the end", header(2, 1, [101, 1448, 0, 0])),
            ("TCP header behind the end", header(1, 1, [66, 1448, 90, 8])),
        ];
        let mut pool = Pool::new(1, 0).unwrap();
        for (name, from) in rows {
            let mut frame = frame(&mut pool, 100);
            assert_eq!(decode(&from, &mut frame), None, "{name}");
            pool.free(frame);
        }
    }

    proptest! {
        #[test]
        fn any_header_is_taken_or_refused_and_its_offsets_lie_inside(
            bytes: [u8; VNET], len in 0usize..=LARGE, fill: u8,
        ) {
            let mut pool = Pool::new(0, 1).unwrap();
            let mut frame = pool.alloc(len).unwrap();
            frame.data_mut().fill(fill);
            if decode(&bytes, &mut frame).is_some() {
                let meta = *frame.meta();
                if let Checksum::Partial { start, offset } = meta.csum {
                    prop_assert!(usize::from(start) + usize::from(offset) + 2 <= len);
                }
                if meta.is_gso() {
                    prop_assert!(meta.gso_size > 0 && usize::from(meta.hdr_len) <= len);
                }
                // What was taken is given back, and taken again.
                let again = encode(&frame);
                prop_assert_eq!(decode(&again, &mut frame), Some(()));
                prop_assert_eq!(encode(&frame), again);
                insert_vlan(&mut frame, 0x8100, 5);
            }
            pool.free(frame);
        }
    }
}
