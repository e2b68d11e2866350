//! Header views and builders, one file per protocol, over plain byte slices: no allocation, no unsafe code.
#![forbid(unsafe_code)]

pub mod ip;
