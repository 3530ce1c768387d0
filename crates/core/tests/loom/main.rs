//! All interleavings of what workers share without a lock (`RUSTFLAGS="--cfg loom"`).
#![cfg_attr(not(loom), allow(missing_docs))]
#![cfg(loom)]

mod bucket;
mod sessions;
mod slots;
