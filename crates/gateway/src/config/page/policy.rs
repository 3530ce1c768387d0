//! The page's `Content-Security-Policy`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use sha2::{Digest, Sha256};

/// `Content-Security-Policy`, all but `form-action`. Code is allowed by its hash (CSP 3, 6.7.3.3): a nonce would have
/// to be made for every visitor.
pub(crate) fn policy(scripts: &[String], styles: &[String]) -> String {
    let hashes = |bodies: &[String]| match bodies {
        [] => " 'none'".to_owned(),
        _ => {
            bodies.iter().map(|body| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(body)))).collect()
        }
    };
    format!(
        "default-src 'none'; script-src{}; style-src{}; img-src data:; connect-src 'self'; base-uri 'none'; \
         frame-ancestors 'self'",
        hashes(scripts),
        hashes(styles)
    )
}

pub(crate) fn header(policy: &str) -> HeaderValue {
    HeaderValue::from_str(policy).expect("a policy is made of ASCII letters, base64 and spaces")
}
