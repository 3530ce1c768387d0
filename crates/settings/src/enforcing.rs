//! Keys of what rules' orders refer to: service levels, lighter URLs, other applications; and of how decisions are told.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::units::Rate;

use super::declare::{Block, Key, Kind, Leaf, Section, Tune, join};
use super::kinds::net::{
    ANY_CLASS_NAME, BASE_URL, COOKIE_NAME, FIELD_NAME, HASH, NAME, Network, TITLE, Text, target_kind,
};
use super::kinds::quantity::{Count, Number, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named, PathName};
use super::read::Reader;
use super::tree::{Node, Table};

/// What an answer's head tells of the decision on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Explained {
    /// Nothing.
    #[default]
    Off,
    /// The request's id, to ask the operator with.
    Id,
    /// Rule, action, level and figures too: these speak of the service's inside.
    Full,
}

impl Named for Explained {
    const NAMES: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("id", Self::Id), ("full", Self::Full)];
}

/// Algorithms of signed tokens (RFC 7518 3.1). "none" is not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256.
    #[default]
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    Rs384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    Rs512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
}

impl Named for JwtAlgorithm {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
    ];
}

impl JwtAlgorithm {
    /// Signer and verifier share one secret.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

/// For whom another application's verdict is asked once and then kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum AskKey {
    /// A client address.
    #[default]
    Client,
    /// The value of the cookie `cookie`; without one, the client address.
    Cookie,
    /// Host and path.
    Url,
}

impl Named for AskKey {
    const NAMES: &'static [(&'static str, Self)] =
        &[("client", Self::Client), ("cookie", Self::Cookie), ("url", Self::Url)];
}

/// What is done where there is no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fallback {
    /// The request goes on.
    #[default]
    Allow,
    /// It is refused.
    Refuse,
}

impl Named for Fallback {
    const NAMES: &'static [(&'static str, Self)] = &[("allow", Self::Allow), ("refuse", Self::Refuse)];
}

const MIN: u64 = 60_000;
const HOUR: u64 = 60 * MIN;

/// A secret that tokens are signed with: at least as long as the shortest hash (RFC 7518 3.2).
const SIGNING_SECRET: Text = Text {
    expected: "at least 32 characters, or \"\"",
    check: |s| if s.is_empty() || (32..=4096).contains(&s.len()) { Ok(()) } else { Err(None) },
    secret: true,
};

section! {
    /// How decisions by rules are told.
    pub struct Explain [tunable] {
        /// The response field `Tidegate-Decision`: "off" none, "id" the request's id, "full" rule, level and figures too.
        header: Explained = Explained::Off => Choice;
    }
}

section! {
    /// Service levels (SLA), first match wins: a request is of the level one of whose conditions it meets. Others are of level
    /// `default`.
    pub struct Tier {
        /// Its name in metrics and rules.
        name: String = String::new() => NAME;
        /// Client networks.
        client: Vec<IpNet> = Vec::new() => List(Network);
        /// The class its requests are of instead of their own, and with it their priority, weight and queue at the gate;
        /// empty: their own.
        class: String = String::new() => OptionalClass;
        /// No rule's order is for it.
        exempt: bool = false => Flag;
        /// It passes the waiting room.
        skip_room: bool = false => Flag;
        /// Sessions it may have beside everybody's; 0: none of its own.
        max_sessions: usize = 0 => Count(0..=10_000_000);
        /// Cost units per second of all its requests together; what is beyond is refused (429); 0: no limit.
        rate: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
        /// Cost units that may come in one instant; 0: one second's worth of `rate`.
        burst: f64 = 0.0 => Number(0.0..=Rate::MAX.get());
    }
    with {
        /// By a key in a header field.
        api_key: TierKey;
        /// By a secret in a cookie.
        cookie: TierCookie;
        /// By a claim of a signed token.
        jwt: TierJwt;
    }
}

/// As [`ANY_CLASS_NAME`], or none.
struct OptionalClass;

impl Leaf<String> for OptionalClass {
    fn parse(&self, value: &super::tree::Value) -> Result<String, Option<String>> {
        match value {
            super::tree::Value::Text(text) if text.is_empty() => Ok(String::new()),
            _ => ANY_CLASS_NAME.parse(value),
        }
    }

    fn expected(&self) -> String {
        "the name of a [[class]], or \"\"".into()
    }

    fn show(&self, value: &String) -> String {
        super::kinds::toml_string(value)
    }
}

section! {
    /// Keys that are of the level. The file holds their hashes, so that whoever reads it cannot use them.
    pub struct TierKey {
        /// The header field that carries a key. In `Authorization` it stands after `Bearer`.
        field: String = "x-api-key".into() => FIELD_NAME;
        /// SHA-256 of each key, in hex: `printf %s KEY | sha256sum`.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }
}

section! {
    /// Cookies that are of the level.
    pub struct TierCookie {
        /// Its name.
        name: String = String::new() => COOKIE_NAME;
        /// SHA-256 of each value, in hex.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }
}

section! {
    /// Signed tokens (RFC 7519) with a claim that is of the level. A token without `exp`, or after it, is none.
    pub struct TierJwt {
        /// The header field that carries the token, after `Bearer` if that stands there.
        field: String = "authorization".into() => FIELD_NAME;
        /// The one algorithm accepted, whatever the token says.
        algorithm: JwtAlgorithm = JwtAlgorithm::Hs256 => Choice;
        /// The secret, for HS algorithms.
        secret: String = String::new() => SIGNING_SECRET;
        /// File of the public key in PEM, for RS and ES algorithms.
        public_key: Option<PathBuf> = None => PathName { file: true };
        /// The claim's name; empty: no tokens.
        claim: String = String::new() => TITLE;
        /// Values of the claim that are of the level; a list in the token may hold any of them.
        values: Vec<String> = Vec::new() => List(TITLE);
        /// What `iss` must be; empty: anything.
        issuer: String = String::new() => TITLE;
        /// What `aud` must name; empty: the token must name none.
        audience: String = String::new() => TITLE;
        /// How far the clocks of signer and gate may be apart.
        leeway: Duration = Duration::ZERO => span_or_zero(1000, HOUR);
    }
}

section! {
    /// Lighter URLs that rules reroute to.
    pub struct Lighter {
        /// Its name in rules.
        name: String = String::new() => NAME;
        /// Path of the same origin; `{path}` stands for the path asked for. The query stays, unless there is one here.
        to: String = "/".into() => target_kind();
        /// The visitor is sent there (302) instead of being served it under the URL asked for.
        redirect: bool = false => Flag;
    }
}

section! {
    /// Other applications that rules ask for their verdict: 2xx is yes, 4xx no; anything else is none.
    pub struct Application {
        /// Its name in rules and metrics.
        name: String = String::new() => NAME;
        /// Whom to ask, with GET over plain HTTP.
        url: String = String::new() => BASE_URL;
        /// What a verdict is about: "client" an address, "cookie" a cookie's value, "url" host and path. It is what the
        /// application is told (`Tidegate-Client`, `Cookie`, `Tidegate-Url`), and nothing else is.
        key: AskKey = AskKey::Client => Choice;
        /// The cookie, for `key = "cookie"`.
        cookie: String = String::new() => COOKIE_NAME;
        /// Longest wait for a verdict.
        deadline: Duration = Duration::from_millis(200) => span(1, MIN);
        /// How long a verdict is kept.
        ttl: Duration = Duration::from_secs(10) => span_or_zero(1, 24 * HOUR);
        /// Without a verdict: "allow" the request, or "refuse" it.
        fallback: Fallback = Fallback::Allow => Choice;
        /// Verdicts kept at most: some 200 bytes each.
        max_kept: usize = 65_536 => Count(1..=1_000_000);
        /// Questions under way at once: beyond, there is no verdict.
        max_asking: usize = 64 => Count(1..=10_000);
    }
}
