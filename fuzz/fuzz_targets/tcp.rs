//! TCP headers and the walk over the options.
#![no_main]

use core::net::Ipv4Addr;
use wire::tcp::{MAX_WINDOW_SCALE, View, field};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        assert!(view.window_scale().is_none_or(|shift| shift <= MAX_WINDOW_SCALE));
        let any = Ipv4Addr::UNSPECIFIED.into();
        let mut written = input.to_vec();
        assert_eq!(view.header().emit(&mut written, any, any, view.payload()), Ok(input.len()));
        // The checksum is made anew, and the four reserved bits are not kept.
        written[field::CHECKSUM].copy_from_slice(&input[field::CHECKSUM]);
        written[field::DATA_OFFSET] |= input[field::DATA_OFFSET] & 0xf;
        assert_eq!(written, input);
    }
});
