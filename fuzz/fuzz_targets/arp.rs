//! ARP packets.
#![no_main]

use wire::arp::{PACKET_LEN, View};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(view) = View::new_checked(input) {
        let mut written = [0; PACKET_LEN];
        assert_eq!(view.packet().emit(&mut written), Ok(PACKET_LEN));
        assert_eq!(written, input[..PACKET_LEN]);
    }
});
