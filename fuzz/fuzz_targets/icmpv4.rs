//! ICMP messages.
#![no_main]

use wire::icmpv4::View;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let mut written = vec![0; input.len()];
        assert_eq!(view.header().emit(&mut written, view.payload()), Ok(input.len()));
        assert!(View::new_checked(&written).is_ok_and(|view| view.checksum_valid()));
        // 0x0000 and 0xffff are the same sum: both may be right.
        assert!(!view.checksum_valid() || written == input || [0, 0xff].contains(&input[2]));
    }
});
