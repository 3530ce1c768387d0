//! Keys of sessions: uniform, as real ones are (splitmix64).

use tidegate_core::session::SessionKey;

pub fn key(n: u64) -> SessionKey {
    let mix = |n: u64| {
        let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    SessionKey(u128::from(mix(n)) << 64 | u128::from(mix(n ^ u64::MAX)))
}
