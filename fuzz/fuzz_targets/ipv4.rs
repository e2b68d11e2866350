//! IPv4 headers: whole packets, super-frames and quotes.
#![no_main]

use wire::ipv4::{MAX_HEADER_LEN, View};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let header = view.header();
        let mut written = [0; MAX_HEADER_LEN];
        let length = header.emit(&mut written).expect("what was read can be written");
        assert_eq!(length, view.header_len());
        let again = View::new_quoted(&written[..length]).expect("what was written can be read");
        assert!(again.checksum_valid());
        assert_eq!(wire::ipv4::Header { payload_len: 0, ..header }, again.header());
        // A bit that has no name is all that may differ, and the checksum then with it.
        let reserved = input[6] & 0x80 != 0;
        assert!(!view.checksum_valid() || reserved || written[..length] == input[..length]);
    }
    for view in [View::new_super_frame(input), View::new_quoted(input)].into_iter().flatten() {
        assert!(view.packet_len() <= input.len());
        assert_eq!(view.header().payload_len, view.payload().len());
    }
});
