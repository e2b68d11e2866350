//! UDP headers: datagrams and super-frames.
#![no_main]

use core::net::Ipv4Addr;
use wire::udp::{HEADER_LEN, View, field};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let any = Ipv4Addr::UNSPECIFIED.into();
        let length = HEADER_LEN + view.payload().len();
        let mut written = input.to_vec();
        assert_eq!(view.header().emit(&mut written, any, any, view.payload()), Ok(length));
        written[field::CHECKSUM].copy_from_slice(&input[field::CHECKSUM]);
        assert_eq!(written, input);
    }
    if let Ok(view) = View::new_super_frame(input) {
        assert!(HEADER_LEN + view.payload().len() <= input.len());
    }
});
