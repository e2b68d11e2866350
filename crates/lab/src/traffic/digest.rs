//! The content of TCP streams: made from a seed, and digested at both ends.

/// An endless stream of bytes that a seed determines (SplitMix64, little-endian words).
#[derive(Clone, Debug)]
pub struct Content {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Content {
    /// The stream of that seed, at its begin.
    pub fn new(seed: u64) -> Self {
        Self { state: seed, word: [0; 8], used: 8 }
    }

    /// Writes the next bytes of the stream.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        let from_word = buffer.len().min(8 - self.used);
        let (head, rest) = buffer.split_at_mut(from_word);
        head.copy_from_slice(&self.word[self.used..self.used + from_word]);
        self.used += from_word;
        let mut words = rest.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.next_word());
        }
        let tail = words.into_remainder();
        if !tail.is_empty() {
            self.word = self.next_word();
            self.used = tail.len();
            tail.copy_from_slice(&self.word[..self.used]);
        }
    }

    fn next_word(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}

/// A 64-bit digest of a stream, however it is cut: each word is folded in by a multiplication to
/// 128 bits, so each bit's place counts. It finds damage, not malice.
#[derive(Clone, Debug)]
pub struct Digest {
    state: u64,
    len: u64,
    pending: [u8; 8],
}

impl Digest {
    /// Of the empty stream.
    pub fn new() -> Self {
        Self { state: 0x6a09_e667_f3bc_c908, len: 0, pending: [0; 8] }
    }

    /// Takes in the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        let held = (self.len % 8) as usize;
        self.len += bytes.len() as u64;
        if held > 0 {
            let taken = bytes.len().min(8 - held);
            self.pending[held..held + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if held + taken < 8 {
                return;
            }
            self.fold(u64::from_le_bytes(self.pending));
        }
        let (words, tail) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        self.pending[..tail.len()].copy_from_slice(tail);
    }

    /// The digest of all bytes so far.
    pub fn value(&self) -> u64 {
        let mut last = self.clone();
        let held = (self.len % 8) as usize;
        last.pending[held..].fill(0);
        last.fold(u64::from_le_bytes(last.pending));
        last.fold(self.len);
        last.state
    }

    /// How many bytes were taken in.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn fold(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        // The rotated word keeps the step one-to-one enough that no word can wipe the state out.
        self.state = ((product >> 64) as u64) ^ (product as u64) ^ word.rotate_left(32);
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn content(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Content::new(seed).fill(&mut bytes);
        bytes
    }

    fn digest(bytes: &[u8]) -> u64 {
        let mut digest = Digest::new();
        digest.update(bytes);
        digest.value()
    }

    /// The reference output of SplitMix64 for seed 1234567 (Vigna's splitmix64.c).
    #[test]
    fn content_is_splitmix64() {
        let expected = [
            6_457_827_717_110_365_317_u64,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let bytes = content(1_234_567, 40);
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w)).collect();
        assert_eq!(words, expected);
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(seed: u64, cuts in prop::collection::vec(0usize..40, 0..20)) {
            let whole = content(seed, cuts.iter().sum());
            let (mut stream, mut sum, mut pieces) = (Content::new(seed), Digest::new(), Vec::new());
            for cut in cuts {
                let mut piece = vec![0; cut];
                stream.fill(&mut piece);
                sum.update(&piece);
                pieces.extend(piece);
            }
            prop_assert_eq!(&pieces, &whole);
            prop_assert_eq!(sum.value(), digest(&whole));
            prop_assert_eq!(sum.len(), whole.len() as u64);
        }

        #[test]
        fn any_flipped_bit_or_swap_shows(seed: u64, len in 1usize..200, at: prop::sample::Index, bit in 0u8..8) {
            let mut bytes = content(seed, len);
            let before = digest(&bytes);
            let at = at.index(len);
            bytes[at] ^= 1 << bit;
            prop_assert_ne!(digest(&bytes), before);
            bytes[at] ^= 1 << bit;
            bytes.push(0);
            prop_assert_ne!(digest(&bytes), before);
            bytes.pop();
            if len >= 16 {
                let (a, b) = bytes.split_at_mut(8);
                a.swap_with_slice(&mut b[..8]);
                prop_assert_ne!(digest(&bytes), before);
            }
        }
    }
}
