//! Probe frames, from the Ethernet header on, with right lengths and checksums.

use std::net::IpAddr;

/// What a probe frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Probe {
    pub src_mac: [u8; 6],
    pub dst_mac: [u8; 6],
    pub src: IpAddr,
    pub dst: IpAddr,
    pub protocol: u8,
    pub src_port: u16,
    pub dst_port: u16,
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

impl Probe {
    /// The frame; `None` if the addresses are of two families.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut payload = self.payload();
        let mut frame = Vec::new();
        frame.extend(self.dst_mac);
        frame.extend(self.src_mac);
        let pseudo = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                frame.extend(0x0800u16.to_be_bytes());
                let mut header = [0u8; 20];
                header[0] = 0x45;
                header[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
                header[6] = 0x40; // don't fragment
                header[8] = 64;
                header[9] = self.protocol;
                header[12..16].copy_from_slice(&src.octets());
                header[16..20].copy_from_slice(&dst.octets());
                let sum = checksum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(header);
                [&src.octets()[..], &dst.octets()].concat()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                frame.extend(0x86ddu16.to_be_bytes());
                frame.extend([0x60, 0, 0, 0]);
                frame.extend((payload.len() as u16).to_be_bytes());
                frame.extend([self.protocol, 64]);
                frame.extend(src.octets());
                frame.extend(dst.octets());
                [&src.octets()[..], &dst.octets()].concat()
            }
            _ => return None,
        };
        self.seal(&mut payload, &pseudo);
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        Some(frame)
    }

    fn payload(&self) -> Vec<u8> {
        let ports = [self.src_port.to_be_bytes(), self.dst_port.to_be_bytes()].concat();
        match self.protocol {
            // RFC 9293 (3.1): sequence 1, no acknowledgment, 5 words, SYN, window 65535.
            TCP => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0]].concat(),
            // RFC 768: length 8, no data.
            UDP => [&ports[..], &[0, 8, 0, 0]].concat(),
            // RFC 792, RFC 4443 (4.1): echo request; the source port stands for the identifier.
            ICMP => [&[8, 0, 0, 0], &ports[..2], &[0, 1]].concat(),
            ICMPV6 => [&[128, 0, 0, 0], &ports[..2], &[0, 1]].concat(),
            _ => vec![0; 8],
        }
    }

    fn seal(&self, payload: &mut [u8], addresses: &[u8]) {
        let length = (payload.len() as u16).to_be_bytes();
        let tail = [0, self.protocol, length[0], length[1]];
        let (at, pseudo): (usize, &[&[u8]]) = match self.protocol {
            TCP => (16, &[addresses, &tail]),
            UDP => (6, &[addresses, &tail]),
            ICMPV6 => (2, &[addresses, &tail]),
            ICMP => (2, &[]),
            _ => return,
        };
        let sum = checksum(&[pseudo, &[&*payload]].concat());
        // RFC 768: a sum of zero is sent as all ones.
        let sum = if sum == 0 && self.protocol == UDP { 0xffff } else { sum };
        payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071) over parts of even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|p| p.chunks_exact(2));
    let mut sum: u32 = words.map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(src: &str, dst: &str, protocol: u8) -> Vec<u8> {
        Probe {
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            protocol,
            src_port: 1000,
            dst_port: 80,
        }
        .frame()
        .unwrap()
    }

    #[test]
    fn checksums_sum_to_all_ones() {
        for protocol in [TCP, UDP, ICMP] {
            let frame = probe("10.0.0.1", "10.0.0.2", protocol);
            let length = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            assert_eq!(checksum(&[&frame[14..34]]), 0, "IPv4 header");
            let payload = &frame[34..14 + length];
            let size = (payload.len() as u16).to_be_bytes();
            let tail = [0, protocol, size[0], size[1]];
            let pseudo: &[&[u8]] = if protocol == ICMP { &[] } else { &[&frame[26..34], &tail] };
            assert_eq!(checksum(&[pseudo, &[payload]].concat()), 0, "protocol {protocol}");
        }
        for protocol in [TCP, UDP, ICMPV6] {
            let frame = probe("fd00::1", "fd00::2", protocol);
            let length = usize::from(u16::from_be_bytes([frame[18], frame[19]]));
            let payload = &frame[54..54 + length];
            let size = (length as u16).to_be_bytes();
            let tail = [0, protocol, size[0], size[1]];
            assert_eq!(checksum(&[&frame[22..54], &tail, payload]), 0, "protocol {protocol}");
        }
    }

    /// RFC 1071 (3): the example's words sum to ddf2, the checksum is its complement.
    #[test]
    fn checksum_of_the_standard() {
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
    }
}
