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
