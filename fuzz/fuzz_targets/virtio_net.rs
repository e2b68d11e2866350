//! The virtio network header.
#![no_main]

use wire::virtio_net::{HEADER_LEN, Header, MERGED_HEADER_LEN};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(header) = Header::parse(input) {
        let mut written = [0; MERGED_HEADER_LEN];
        assert_eq!(header.emit_merged(&mut written, 1), Ok(MERGED_HEADER_LEN));
        assert_eq!(written[..HEADER_LEN], input[..HEADER_LEN]);
        assert_eq!(written[HEADER_LEN..], [1, 0]);
    }
});
