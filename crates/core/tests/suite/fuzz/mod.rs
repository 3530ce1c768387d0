//! Fuzz targets, shared by the fuzzer (`fuzz/`) and by `fuzz_slice.rs`.

pub mod classify;
pub mod ticket;

/// Cuts a piece off the front: its length is the first byte.
fn piece<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let Some((&len, rest)) = data.split_first() else { return &[] };
    let (piece, rest) = rest.split_at(rest.len().min(len.into()));
    *data = rest;
    piece
}
