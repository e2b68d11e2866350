//! The whole parse pass over a frame.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Some((frame, meta)) = softdpu_fuzz::frame(input) {
        softdpu_fuzz::check(&frame, &meta);
    }
});
