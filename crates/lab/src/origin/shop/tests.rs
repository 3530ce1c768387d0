//! Tests of the whole shop.
