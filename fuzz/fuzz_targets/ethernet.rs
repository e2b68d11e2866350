//! Ethernet headers, and the text of MAC addresses.
#![no_main]

use wire::ethernet::{HEADER_LEN, MacAddr, View};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let mut written = [0; HEADER_LEN];
        assert_eq!(view.header().emit(&mut written), Ok(HEADER_LEN));
        assert_eq!(written, input[..HEADER_LEN]);
        assert_eq!(view.payload(), &input[HEADER_LEN..]);
    }
    if let Some(mac) = str::from_utf8(input).ok().and_then(|text| text.parse::<MacAddr>().ok()) {
        assert!(mac.to_string().as_bytes().eq_ignore_ascii_case(input));
    }
});
