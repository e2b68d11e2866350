//! Virtio's header in front of each frame (virtio 1.2, 5.1.6), to and from [`Meta`].
//!
//! On TAP and AF_PACKET its fields are in the byte order of the machine. The fields pass
//! untouched: whoever forwards a frame gives the kernel back what the kernel said.

use packet::{Checksum, Frame, GsoType, Meta};

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

/// Reads the header of a frame of `len` bytes into `meta`. `None` when it contradicts itself or
/// the frame, or names a kind of super-frame that was not asked for.
#[inline]
pub(crate) fn decode(header: &[u8; VNET], len: usize, meta: &mut Meta) -> Option<()> {
    let field = |i: usize| u16::from_ne_bytes([header[i], header[i + 1]]);
    let (flags, gso) = (header[0], header[1]);
    if flags & NEEDS_CSUM != 0 {
        let (start, offset) = (field(6), field(8));
        if usize::from(start) + usize::from(offset) + 2 > len {
            return None;
        }
        meta.csum = Checksum::Partial { start, offset };
    } else if flags & DATA_VALID != 0 {
        meta.csum = Checksum::Verified;
    }
    if gso != 0 {
        meta.gso = match gso & !GSO_ECN {
            GSO_TCPV4 => GsoType::TcpV4,
            GSO_TCPV6 => GsoType::TcpV6,
            GSO_UDP_L4 => GsoType::UdpL4,
            _ => return None,
        };
        meta.gso_ecn = gso & GSO_ECN != 0;
        meta.gso_size = field(4);
        if meta.gso_size == 0 || usize::from(field(2)) > len {
            return None;
        }
    }
    meta.hdr_len = field(2);
    Some(())
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
