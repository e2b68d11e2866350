//! ICMPv6 messages, between the addresses in the first 32 bytes.
#![no_main]

use core::net::Ipv6Addr;
use wire::icmpv6::View;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((ends, message)) = input.split_first_chunk::<32>() else { return };
    let (ends, _) = ends.as_chunks::<16>();
    let [src, dst] = [Ipv6Addr::from(ends[0]), Ipv6Addr::from(ends[1])];
    if let Ok(view) = View::new_checked(message) {
        let mut written = vec![0; message.len()];
        assert_eq!(view.header().emit(&mut written, src, dst, view.payload()), Ok(message.len()));
        assert!(View::new_checked(&written).is_ok_and(|view| view.checksum_valid(src, dst)));
        assert!(!view.checksum_valid(src, dst) || written == message || [0, 0xff].contains(&message[2]));
    }
});
