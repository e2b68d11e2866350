//! The packet that an ICMP error quotes.
#![no_main]

use packet::Meta;
use pipeline::parse::Class;

libfuzzer_sys::fuzz_target!(|quote: &[u8]| {
    if let Some(frame) = softdpu_fuzz::error_with_quote(quote)
        && let Some(class) = softdpu_fuzz::check(&frame, &Meta::default())
    {
        assert_eq!(class, Class::IcmpError);
    }
});
