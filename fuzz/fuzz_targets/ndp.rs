//! Neighbor discovery messages and the walk over the options.
#![no_main]

use core::net::Ipv6Addr;
use wire::ndp::{HOP_LIMIT, View};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let any = Ipv6Addr::UNSPECIFIED;
        view.is_valid_between(any, any, HOP_LIMIT);
        assert!(view.link_layer_offset().is_none_or(|at| at + 6 <= input.len()));
        let message = view.message();
        let mut written = vec![0; message.emit_len()];
        assert_eq!(message.emit(&mut written, any, any), Ok(written.len()));
        assert_eq!(View::new_checked(&written).map(|view| view.message()), Ok(message));
    }
});
