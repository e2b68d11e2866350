//! A whole device: frames in at its ports, threads stepped by hand, and what has become of each frame.
//!
//! `rows.rs` has a row for each thing that a stage of the program may say, `conversations.rs` those of connections, `reasons.rs`
//! a test for each reason to drop a frame, `vectors.rs` malformed frames of ours and `captures.rs` those of others, `tiers.rs`
//! who decides a connection, `resets.rs` what of it outlives a warm reset, and `endings.rs` how it ends.

mod captures;
mod common;
mod conversations;
mod endings;
mod reasons;
mod resets;
mod rows;
mod tiers;
mod vectors;
