//! `[[tier]]`, `[[lighter]]` and `[[application]]`: what rules refer to; and `[explain]`: what responses say.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::units::Rate;

use super::Settings;
use super::kinds::net::{
    BASE_URL, CLASS_OR_NONE, COOKIE_NAME, FIELD_NAME, HASH, NAME, Network, TARGET, TITLE, Text,
};
use super::kinds::quantity::{Count, DAY, HOUR, MIN, Number, span, span_or_zero};
use super::kinds::{Choice, Flag, List, PathName};
use super::read::{Reader, item_path};

named! {
    /// What the head of a response says of the decision on its request.
    pub enum Explained {
        #[default] Off = "off",
        /// The request's id, by which the operator finds the decision.
        Id = "id",
        /// Rule, action, level and figures too. They reveal internals of the service.
        Full = "full",
    }

    /// Algorithms of signed tokens (RFC 7518 3.1): HMAC, RSA PKCS#1 v1.5, ECDSA on P-256 and P-384. "none" is
    /// not among them.
    pub enum JwtAlgorithm {
        #[default] Hs256 = "HS256",
        Hs384 = "HS384",
        Hs512 = "HS512",
        Rs256 = "RS256",
        Rs384 = "RS384",
        Rs512 = "RS512",
        Es256 = "ES256",
        Es384 = "ES384",
    }
}

impl JwtAlgorithm {
    /// Whether signer and verifier share one secret.
    pub const fn is_symmetric(self) -> bool {
        matches!(self, Self::Hs256 | Self::Hs384 | Self::Hs512)
    }
}

named! {
    /// For what an application is asked once; its answer is then kept.
    pub enum AskKey {
        #[default] Client = "client",
        /// The value of the cookie `cookie`; without one, the client address.
        Cookie = "cookie",
        /// Host and path.
        Url = "url",
    }

    /// What happens to the request if the application gives no answer.
    pub enum Fallback {
        #[default] Allow = "allow",
        Refuse = "refuse",
    }
}

/// A secret that tokens are signed with: at least as long as the shortest hash (RFC 7518 3.2).
const SIGNING_SECRET: Text = Text {
    expected: "at least 32 characters, or \"\"",
    check: |s| if s.is_empty() || (32..=4096).contains(&s.len()) { Ok(()) } else { Err(None) },
    secret: true,
};

section! {
    /// What is done with requests that rules and quotas refuse.
    pub struct Enforcement [tunable] {
        /// Rules, quotas of service levels, the waiting room and session slots decide, count and log, and
        /// hold or refuse nobody: all rules are as if each had `shadow`. For a first rollout. The gate's
        /// queue, the in-flight limit and buckets of classes that refuse act as always.
        shadow: bool = false => Flag;
    }

    /// What responses say of decisions by rules.
    pub struct Explain [tunable] {
        /// The response field `Tidegate-Decision`: "off" none, "id" the request's id, "full" also rule, level
        /// and figures.
        header: Explained = Explained::Off => Choice;
    }

    /// Service levels (SLA), first match wins: a request is of a level if it meets one of its conditions.
    /// Other requests are of level `default`.
    pub struct Tier [tunable] {
        /// Its name in metrics and rules.
        [fixed] name: String = String::new() => NAME;
        /// Client networks.
        [fixed] client: Vec<IpNet> = Vec::new() => List(Network);
        /// The class of its requests, with its priority, weight and queue at the gate; empty: the class that
        /// they match.
        [fixed] class: String = String::new() => CLASS_OR_NONE;
        /// No rule applies to it.
        exempt: bool = false => Flag;
        /// It does not wait in the waiting room.
        skip_room: bool = false => Flag;
        /// Session slots of its own, beside those of everybody; 0: none.
        max_sessions: usize = 0 => Count(0..=10_000_000);
        /// Cost units per second of all its requests together; requests beyond it are refused (429); 0: no
        /// limit.
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

    /// Keys of the level. The file holds their hashes, so that nobody who reads it can use them.
    pub struct TierKey {
        /// The header field that carries a key. In `Authorization` the key follows `Bearer`.
        field: String = "x-api-key".into() => FIELD_NAME;
        /// SHA-256 of each key, in hex: `printf %s KEY | sha256sum`.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }

    /// Cookies of the level.
    pub struct TierCookie {
        /// Its name.
        name: String = String::new() => COOKIE_NAME;
        /// SHA-256 of each value, in hex.
        sha256: Vec<String> = Vec::new() => List(HASH);
    }

    /// Signed tokens (RFC 7519) with a claim of the level. A token that has no `exp`, or has expired, does
    /// not count.
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

    /// Lighter URLs that rules reroute to.
    pub struct Lighter {
        /// Its name in rules.
        name: String = String::new() => NAME;
        /// Path of the same origin; `{path}` stands for the path asked for. The query stays, unless there is
        /// one here.
        to: String = "/".into() => TARGET;
        /// The visitor is redirected there (302) instead of getting its content under the URL asked for.
        redirect: bool = false => Flag;
    }

    /// Other applications that rules ask (external authorisers): 2xx means yes, 4xx no; anything else is no
    /// answer.
    pub struct Application {
        /// Its name in rules and metrics.
        name: String = String::new() => NAME;
        /// The URL to ask, with GET over plain HTTP.
        url: String = String::new() => BASE_URL;
        /// What an answer is about: "client" an address, "cookie" the value of a cookie, "url" host and path.
        /// The application is told this (`Tidegate-Client`, `Cookie`, `Tidegate-Url`) and nothing else.
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
    for list in ["tier", "lighter", "application"] {
        out.check_names(list, &settings.item_names(list));
    }
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
        if !["http://", "https://"].iter().any(|scheme| application.url.starts_with(scheme)) {
            let got = match application.url.as_str() {
                "" => "nothing".into(),
                url => format!("\"{url}\""),
            };
            out.conflict(
                &format!("{path}.url"),
                "the URL to ask, which starts with http:// or https://",
                got,
                None,
            );
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
