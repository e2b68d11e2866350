//! The stream between controller and device: the first byte says which side reads it.
#![no_main]

use contract::codec::{Decoder, Request, Response, encode};

fn read<T>(stream: &[u8])
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let mut decoder = Decoder::default();
    decoder.push(stream);
    while let Ok(Some(record)) = decoder.pop::<T>() {
        let mut again = Vec::new();
        encode(&record, &mut again);
        let mut decoder = Decoder::default();
        decoder.push(&again);
        assert_eq!(decoder.pop(), Ok(Some(record)));
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0, stream)) => read::<Request>(stream),
        Some((_, stream)) => read::<Response>(stream),
        None => {}
    }
});
