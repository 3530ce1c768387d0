//! `[[tier]]`, `[[lighter]]` and `[[application]]`: what rules refer to; and `[explain]`: what responses say of decisions.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::units::Rate;

use super::Settings;
use super::kinds::net::{
    BASE_URL, CLASS_OR_NONE, COOKIE_NAME, FIELD_NAME, HASH, NAME, Network, TARGET, TITLE, Text,
};
use super::kinds::quantity::{Count, DAY, HOUR, MIN, Number, span, span_or_zero};
use super::kinds::{Choice, Flag, List, Named, PathName};
use super::read::{Reader, item_path};

/// What the head of a response says of the decision on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Explained {
    /// Nothing.
    #[default]
    Off,
    /// The request's id, by which the operator finds the decision.
    Id,
    /// Rule, action, level and figures too. They reveal internals of the service.
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
    /// Whether signer and verifier share one secret.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

/// For what an application is asked once; its answer is then kept.
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

/// What is done if the application gives no answer.
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

/// A secret that tokens are signed with: at least as long as the shortest hash (RFC 7518 3.2).
const SIGNING_SECRET: Text = Text {
    expected: "at least 32 characters, or \"\"",
    check: |s| if s.is_empty() || (32..=4096).contains(&s.len()) { Ok(()) } else { Err(None) },
    secret: true,
};

section! {
    /// What responses say of decisions by rules.
    pub struct Explain [tunable] {
        /// The response field `Tidegate-Decision`: "off" none, "id" the request's id, "full" also rule, level and figures.
        header: Explained = Explained::Off => Choice;
    }
}

section! {
    /// Service levels (SLA), first match wins: a request is of a level if it meets one of its conditions. Other requests are
    /// of level `default`.
    pub struct Tier {
        /// Its name in metrics and rules.
        name: String = String::new() => NAME;
        /// Client networks.
        client: Vec<IpNet> = Vec::new() => List(Network);
        /// The class of its requests, with its priority, weight and queue at the gate; empty: the class that they match.
        class: String = String::new() => CLASS_OR_NONE;
        /// No rule applies to it.
        exempt: bool = false => Flag;
        /// It does not wait in the waiting room.
        skip_room: bool = false => Flag;
        /// Session slots of its own, beside those of everybody; 0: none.
        max_sessions: usize = 0 => Count(0..=10_000_000);
        /// Cost units per second of all its requests together; requests beyond it are refused (429); 0: no limit.
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

section! {
    /// Keys of the level. The file holds their hashes, so that nobody who reads it can use them.
    pub struct TierKey {
        /// The header field that carries a key. In `Authorization` the key follows `Bearer`.
        field: String = "x-api-key".into() => FIELD_NAME;
        /// SHA-256 of each key, in hex: `printf %s KEY | sha256sum`.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }
}

section! {
    /// Cookies of the level.
    pub struct TierCookie {
        /// Its name.
        name: String = String::new() => COOKIE_NAME;
        /// SHA-256 of each value, in hex.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }
}

section! {
    /// Signed tokens (RFC 7519) with a claim of the level. A token that has no `exp`, or has expired, does not count.
    pub struct TierJwt {
        /// The header field that carries the token, with or without `Bearer` before it.
        field: String = "authorization".into() => FIELD_NAME;
        /// The one algorithm accepted, whatever the token says.
        algorithm: JwtAlgorithm = JwtAlgorithm::Hs256 => Choice;
        /// The secret, for HS algorithms.
        secret: String = String::new() => SIGNING_SECRET;
        /// File of the public key in PEM, for RS and ES algorithms.
        public_key: Option<PathBuf> = None => PathName::ReadableFile;
        /// The claim's name; empty: no tokens.
        claim: String = String::new() => TITLE;
        /// Values of the claim that belong to the level. If the claim is a list, one of its values is enough.
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
        to: String = "/".into() => TARGET;
        /// The visitor is redirected there (302) instead of getting its content under the URL asked for.
        redirect: bool = false => Flag;
    }
}

section! {
    /// Other applications that rules ask (external authorisers): 2xx means yes, 4xx no; anything else is no answer.
    pub struct Application {
        /// Its name in rules and metrics.
        name: String = String::new() => NAME;
        /// The URL to ask, with GET over plain HTTP.
        url: String = String::new() => BASE_URL;
        /// What an answer is about: "client" an address, "cookie" the value of a cookie, "url" host and path. The application
        /// is told this (`Tidegate-Client`, `Cookie`, `Tidegate-Url`) and nothing else.
        key: AskKey = AskKey::Client => Choice;
        /// The cookie, for `key = "cookie"`.
        cookie: String = String::new() => COOKIE_NAME;
        /// Longest wait for an answer.
        deadline: Duration = Duration::from_millis(200) => span(1, MIN);
        /// How long an answer is kept.
        ttl: Duration = Duration::from_secs(10) => span_or_zero(1, DAY);
        /// Without an answer: "allow" the request, or "refuse" it.
        fallback: Fallback = Fallback::Allow => Choice;
        /// Most answers kept: some 200 bytes each.
        max_kept: usize = 65_536 => Count(1..=1_000_000);
        /// Questions under way at once. A request beyond them counts as one without an answer.
        max_asking: usize = 64 => Count(1..=10_000);
    }
}

/// Reports what service levels, lighter URLs and applications must have and lack.
pub(crate) fn check(settings: &Settings, out: &mut Reader) {
    out.check_names("tier", &settings.tier_names());
    out.check_names("lighter", &settings.lighter_names());
    out.check_names("application", &settings.application_names());
    let classes = settings.class_names();
    for (i, tier) in settings.tier.iter().enumerate() {
        let path = item_path("tier", &tier.name, i);
        check_conditions(tier, &path, out);
        if !tier.class.is_empty() {
            out.check_reference(&format!("{path}.class"), &tier.class, "class", &classes);
        }
    }
    for (i, application) in settings.application.iter().enumerate() {
        let path = item_path("application", &application.name, i);
        if !application.url.starts_with("http://") {
            let got = if application.url.is_empty() {
                "nothing".into()
            } else {
                format!("\"{}\"", application.url)
            };
            out.conflict(&format!("{path}.url"), "the URL to ask, which starts with http://", got, None);
        }
        if application.key == AskKey::Cookie && application.cookie.is_empty() {
            let expected = "the cookie's name beside `key = \"cookie\"`";
            out.conflict(&format!("{path}.cookie"), expected, "nothing", None);
        }
    }
}

fn check_conditions(tier: &Tier, path: &str, out: &mut Reader) {
    let jwt = &tier.jwt;
    if tier.client.is_empty()
        && tier.api_key.sha256.is_empty()
        && tier.cookie.sha256.is_empty()
        && jwt.claim.is_empty()
    {
        let expected = "who is of the level: `client`, `api_key`, `cookie` or `jwt`";
        out.conflict(&format!("{path}.client"), expected, "nothing", None);
    }
    if !tier.cookie.sha256.is_empty() && tier.cookie.name.is_empty() {
        out.conflict(&format!("{path}.cookie.name"), "the cookie's name", "nothing", None);
    }
    if jwt.claim.is_empty() {
        return;
    }
    if jwt.values.is_empty() {
        out.conflict(&format!("{path}.jwt.values"), "values of the claim", "none", None);
    }
    let (key, is_missing) = match jwt.algorithm.is_symmetric() {
        true => ("secret", jwt.secret.is_empty()),
        false => ("public_key", jwt.public_key.is_none()),
    };
    if is_missing {
        let expected = "a key to check the signatures of the tokens";
        out.conflict(&format!("{path}.jwt.{key}"), expected, "nothing", None);
    }
}
