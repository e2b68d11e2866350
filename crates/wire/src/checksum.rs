//! The Internet checksum (RFC 1071), its pseudo headers, its incremental update (RFC 1624) and its deferred completion.
//!
//! A *sum* here is the 16-bit ones' complement sum, not yet complemented; a *checksum* is its complement, as it stands in headers.

use crate::WireError;

/// The sum of the bytes as big-endian 16-bit words; an odd last byte counts as the upper half of a word. RFC 1071 (1).
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    // Wider words in native order give the same sum with its bytes swapped at the end: RFC 1071 (2, B and C).
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let last = match *rest {
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c] => [a, b, c, 0],
        _ => [0; 4],
    };
    total += u64::from(u32::from_ne_bytes(last));
    fold(total).to_be()
}

/// Folds carries back in until 16 bits remain.
#[inline]
const fn fold(total: u64) -> u16 {
    let total = (total >> 32) + (total & 0xffff_ffff);
    let total = (total >> 16 & 0xffff) + (total & 0xffff) + (total >> 32);
    let total = (total >> 16) + (total & 0xffff);
    ((total >> 16) + total) as u16
}

/// Adds two sums. Sums of parts add to the whole's when all parts but the last have an even length.
#[inline]
pub const fn add(a: u16, b: u16) -> u16 {
    fold(a as u64 + b as u64)
}

/// The checksum of the bytes.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Whether bytes that hold their own checksum are intact, given the sum of what else it covers (0 for nothing). RFC 1071 (1).
#[inline]
pub fn is_valid(bytes: &[u8], pseudo: u16) -> bool {
    add(sum(bytes), pseudo) == 0xffff
}

/// The sum of the pseudo header of IPv4 (RFC 9293, 3.1) or IPv6 (RFC 8200, 8.1). Addresses are 128 bits, IPv4 in its mapped
/// form: the mapping adds 0xffff, which is zero in ones' complement, so that one function serves both.
#[inline]
pub fn pseudo_header(src: u128, dst: u128, protocol: u8, length: u32) -> u16 {
    let words = |a: u128| {
        (a as u32 as u64) + ((a >> 32) as u32 as u64) + ((a >> 64) as u32 as u64) + (a >> 96) as u64
    };
    fold(words(src) + words(dst) + u64::from(protocol) + u64::from(length))
}

/// A sum after part of what it covers changed, where `old` and `new` are the sums of that part. This is what an address rewrite
/// does to the field of a *partial* checksum, which holds the sum of the pseudo header.
#[inline]
pub const fn replace(sum: u16, old: u16, new: u16) -> u16 {
    add(add(sum, !old), new)
}

/// A checksum after part of what it covers changed, where `old` and `new` are the sums of that part. RFC 1624 (3), equation 3.
#[inline]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !replace(!checksum, old, new)
}

/// Completes a partial checksum: sums from `start` to the end, where the field at `start + offset` holds the pseudo header's sum,
/// and writes the complement there; 0 becomes 0xffff (RFC 768). virtio 1.2, 5.1.6.2.
///
/// # Errors
/// [`WireError::Truncated`] when the field is not within the frame.
pub fn complete(frame: &mut [u8], start: usize, offset: usize) -> Result<(), WireError> {
    let have = frame.len();
    let need = start.saturating_add(offset).saturating_add(2);
    let Some(covered) = frame.get_mut(start..).filter(|_| need <= have) else {
        return Err(WireError::Truncated { need, have });
    };
    let checksum = match checksum(covered) {
        0 => 0xffff,
        value => value,
    };
    covered[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// The slow reference: RFC 1071 (4.1), word by word.
#[cfg(test)]
pub(crate) fn reference(bytes: &[u8]) -> u16 {
    let mut total = 0u32;
    for pair in bytes.chunks(2) {
        let word =
            if pair.len() == 2 { u16::from_be_bytes([pair[0], pair[1]]) } else { u16::from(pair[0]) << 8 };
        total += u32::from(word);
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use core::net::IpAddr;
    use proptest::prelude::*;

    #[test]
    fn rfc_1071_example() {
        // RFC 1071 (3): the sum of 0001 f203 f4f5 f6f7 is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    #[test]
    fn rfc_1624_example() {
        // RFC 1624 (4): checksum 0xdd2f, a field turns from 0x5555 to 0x3285, the new checksum is 0x0000.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn longest_of_ones_does_not_overflow() {
        assert_eq!(sum(&[0xff; 65_599]), reference(&[0xff; 65_599]));
        assert_eq!(sum(&[0xff; 65_598]), 0xffff);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn completion_needs_its_field() {
        assert_eq!(complete(&mut [0; 20], 10, 9), Err(WireError::Truncated { need: 21, have: 20 }));
        assert_eq!(complete(&mut [0; 20], 30, 0), Err(WireError::Truncated { need: 32, have: 20 }));
        assert_eq!(
            complete(&mut [0; 20], usize::MAX, 5),
            Err(WireError::Truncated { need: usize::MAX, have: 20 })
        );
        let mut frame = [0xff; 4];
        complete(&mut frame, 0, 2).unwrap();
        assert_eq!(frame, [0xff; 4], "a checksum of zero is sent as ones");
    }

    proptest! {
        #[test]
        fn sum_equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(sum(&bytes), reference(&bytes));
        }

        #[test]
        fn parts_add_up(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..150) {
            let cut = (cut * 2).min(bytes.len() & !1);
            prop_assert_eq!(add(sum(&bytes[..cut]), sum(&bytes[cut..])), sum(&bytes));
        }

        #[test]
        fn pseudo_header_equals_the_bytes_summed(src: IpAddr, dst: IpAddr, protocol: u8, length: u16) {
            let mut bytes = Vec::new();
            for address in [src, dst] {
                match address {
                    IpAddr::V4(v4) => bytes.extend(v4.octets()),
                    IpAddr::V6(v6) => bytes.extend(v6.octets()),
                }
            }
            bytes.extend(u32::from(length).to_be_bytes());
            bytes.extend([0, 0, 0, protocol]);
            let sum = pseudo_header(ip::to_bits(src), ip::to_bits(dst), protocol, u32::from(length));
            prop_assert_eq!(sum % 0xffff, reference(&bytes) % 0xffff);
        }

        #[test]
        fn update_equals_a_new_checksum(mut bytes in proptest::collection::vec(any::<u8>(), 8..80), new: [u8; 4]) {
            bytes[0] |= 1;
            let before = checksum(&bytes);
            let old = sum(&bytes[4..8]);
            bytes[4..8].copy_from_slice(&new);
            // A sum is 0 only over zeros, which no header is: 0x0000 and 0xffff are told apart (RFC 1624, 3).
            prop_assert_eq!(update(before, old, sum(&new)), checksum(&bytes));
        }

        #[test]
        fn completed_is_valid(payload in proptest::collection::vec(any::<u8>(), 0..100), src: u128, dst: u128) {
            let mut frame = vec![7; 10];
            frame.extend([0; 8]);
            frame.extend(&payload);
            let length = (8 + payload.len()) as u32;
            let pseudo = pseudo_header(src, dst, 17, length);
            frame[16..18].copy_from_slice(&pseudo.to_be_bytes());
            complete(&mut frame, 10, 6).unwrap();
            prop_assert!(is_valid(&frame[10..], pseudo));
            prop_assert_eq!(&frame[..10], &[7; 10]);
        }
    }
}
