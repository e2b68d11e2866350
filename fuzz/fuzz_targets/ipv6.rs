//! IPv6 headers and the walk over the extension headers.
#![no_main]

use wire::ipv6::{HEADER_LEN, View};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let mut written = [0; HEADER_LEN];
        assert_eq!(view.header().emit(&mut written), Ok(HEADER_LEN));
        assert_eq!(written, input[..HEADER_LEN]);
    }
    for view in [View::new_checked(input), View::new_super_frame(input), View::new_quoted(input)]
        .into_iter()
        .flatten()
    {
        assert!(view.packet_len() <= input.len());
        if let Ok(upper) = view.upper_layer() {
            assert!((HEADER_LEN..=view.packet_len()).contains(&upper.offset));
        }
    }
});
