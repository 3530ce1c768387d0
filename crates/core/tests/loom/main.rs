//! Model checks by loom of everything that workers share without a lock:
//! `RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p tidegate-core --release --test loom`
#![cfg_attr(not(loom), allow(missing_docs))]
#![cfg(loom)]

mod bucket;
mod sessions;
mod slots;
