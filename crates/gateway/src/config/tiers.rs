//! Service levels (WAC figure 2, "SLA checker"): finds the level of a request.
//!
//! A level is recognised by an API key, a cookie, the client's network or a claim of a signed token. The
//! first level of the file that matches is the request's. It is found once per request, and only where levels
//! are configured.
//!
//! Keys and cookies are compared as SHA-256, so that the file contains no secret. All stored hashes are
//! always compared, so that the time reveals nothing about a key. A token must use the configured algorithm;
//! its own header cannot choose another (RFC 8725 3.1). A token without `exp` is invalid.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tidegate_core::bucket::{BucketConfig, SharedBucket};
use tidegate_core::policies::{MAX_TIERS, TierId};
use tidegate_core::units::{ClassId, Cost, Rate, Timestamp};
use tidegate_http::{Fields, Name, name};
use tidegate_settings::{JwtAlgorithm, Settings};

/// Longest token that is verified: several times what identity providers issue.
const MAX_TOKEN: usize = 8 << 10;

#[derive(Debug, thiserror::Error)]
pub enum TierError {
    #[error("tier.{tier}.jwt.public_key: {source}")]
    Read { tier: String, source: std::io::Error },
    #[error("tier.{tier}.jwt.public_key: expected a PEM public key for the algorithm: {source}")]
    Key { tier: String, source: jsonwebtoken::errors::Error },
}

pub struct Tier {
    pub name: Arc<str>,
    /// The class of its requests, by index in the file; `None`: they are classified.
    pub class: Option<ClassId>,
    pub skips_room: bool,
    /// Session slots of its own, beside the common ones; 0: none.
    pub max_sessions: usize,
    quota: Option<Arc<SharedBucket>>,
    quota_config: BucketConfig,
    signs: Arc<Signs>,
}

struct Signs {
    client: Vec<IpNet>,
    /// Lower-case name of the field, and the accepted hashes.
    key: Option<(String, Hashes)>,
    cookie: Option<(String, Hashes)>,
    token: Option<Token>,
}

struct Hashes(Vec<[u8; 32]>);

struct Token {
    field: String,
    key: DecodingKey,
    validation: Validation,
    claim: String,
    values: Vec<String>,
    leeway: Duration,
}

/// Every level. The default level is 0 and has no entry.
#[derive(Default)]
pub struct Tiers(Vec<Tier>);

impl Tiers {
    /// Compiles the settings. `class` gives a class's index in the file by its name.
    pub fn new(settings: &Settings, class: impl Fn(&str) -> Option<ClassId>) -> Result<Self, TierError> {
        let tiers = settings.tier.iter().map(|tier| Tier::new(tier, &class));
        Ok(Self(tiers.collect::<Result<_, _>>()?))
    }

    /// The same levels with other values of tunables. No key file is read again.
    pub fn tuned(&self, settings: &Settings) -> Self {
        let tuned = |(old, new): (&Tier, _)| Tier::with(new, old.class, old.signs.clone());
        Self(self.0.iter().zip(&settings.tier).map(tuned).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The level; `None` for the default level.
    pub fn get(&self, id: TierId) -> Option<&Tier> {
        self.0.get(usize::from(id.0).checked_sub(1)?)
    }

    /// Every level but the default one.
    pub fn iter(&self) -> impl Iterator<Item = (TierId, &Tier)> {
        (1..=MAX_TIERS as u8).map(TierId).zip(&self.0)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|tier| &*tier.name)
    }

    /// Every level with its id, the default level first.
    pub fn all(&self) -> impl Iterator<Item = (TierId, &str)> {
        let of_everybody = (TierId(0), tidegate_settings::DEFAULT);
        std::iter::once(of_everybody).chain(self.iter().map(|(id, tier)| (id, &*tier.name)))
    }

    /// By name, `default` included.
    pub fn by_name(&self, name: &str) -> Option<TierId> {
        if name == tidegate_settings::DEFAULT {
            return Some(TierId(0));
        }
        self.iter().find(|(_, tier)| &*tier.name == name).map(|(id, _)| id)
    }

    pub fn of<'h>(&'h self, fields: &'h Fields, client: IpAddr, now: Timestamp) -> TierId {
        let mut seen = Seen { fields, hashed: HashMap::new() };
        self.iter()
            .find(|(_, tier)| tier.signs.are_of(&mut seen, client, now))
            .map_or(TierId(0), |(id, _)| id)
    }

    /// Takes over the state of the quotas of a previous configuration.
    pub fn succeed(&mut self, old: &Self, now: Timestamp) {
        for tier in &mut self.0 {
            let before = old.0.iter().find(|o| o.name == tier.name).and_then(|o| o.quota.as_ref());
            if let Some(before) = before {
                tier.quota = before.succeed(&tier.quota_config, now);
            }
        }
    }
}

struct Seen<'h> {
    fields: &'h Fields,
    hashed: HashMap<&'h [u8], [u8; 32]>,
}

impl<'h> Seen<'h> {
    fn hash(&mut self, secret: &'h [u8]) -> [u8; 32] {
        *self.hashed.entry(secret).or_insert_with(|| Sha256::digest(secret).into())
    }
}

impl Tier {
    fn new(
        tier: &tidegate_settings::Tier,
        class: &impl Fn(&str) -> Option<ClassId>,
    ) -> Result<Self, TierError> {
        let signs = Signs {
            client: tier.client.clone(),
            key: hashes(&tier.api_key.field, &tier.api_key.sha256),
            cookie: hashes(&tier.cookie.name, &tier.cookie.sha256),
            token: token(tier)?,
        };
        Ok(Self::with(tier, class(&tier.class), Arc::new(signs)))
    }

    fn with(tier: &tidegate_settings::Tier, class: Option<ClassId>, signs: Arc<Signs>) -> Self {
        let rate = Rate::per_second(tier.rate).unwrap_or_default();
        let burst = Cost::from_hundredths((tier.burst * 100.0).round() as u64);
        let burst = if burst > Cost::ZERO { burst } else { rate.over(Duration::from_secs(1)).max(Cost::ONE) };
        let quota_config = BucketConfig { rate, burst };
        Self {
            name: tier.name.as_str().into(),
            class,
            skips_room: tier.skip_room,
            max_sessions: tier.max_sessions,
            quota: SharedBucket::new(&quota_config),
            quota_config,
            signs,
        }
    }

    pub fn quota(&self) -> Option<&SharedBucket> {
        self.quota.as_deref()
    }
}

fn hashes(name: &str, hex: &[String]) -> Option<(String, Hashes)> {
    let all: Vec<[u8; 32]> = hex.iter().filter_map(|hex| unhex(hex)).collect();
    (!all.is_empty()).then(|| (name.to_owned(), Hashes(all)))
}

fn unhex(hex: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

fn token(tier: &tidegate_settings::Tier) -> Result<Option<Token>, TierError> {
    let jwt = &tier.jwt;
    if jwt.claim.is_empty() {
        return Ok(None);
    }
    let named = || tier.name.clone();
    let pem = || match &jwt.public_key {
        Some(path) => std::fs::read(path).map_err(|source| TierError::Read { tier: named(), source }),
        None => Ok(Vec::new()),
    };
    let wrong = |source| TierError::Key { tier: named(), source };
    let (algorithm, key) = match jwt.algorithm {
        JwtAlgorithm::Hs256 => (Algorithm::HS256, DecodingKey::from_secret(jwt.secret.as_bytes())),
        JwtAlgorithm::Hs384 => (Algorithm::HS384, DecodingKey::from_secret(jwt.secret.as_bytes())),
        JwtAlgorithm::Hs512 => (Algorithm::HS512, DecodingKey::from_secret(jwt.secret.as_bytes())),
        JwtAlgorithm::Rs256 => (Algorithm::RS256, DecodingKey::from_rsa_pem(&pem()?).map_err(wrong)?),
        JwtAlgorithm::Rs384 => (Algorithm::RS384, DecodingKey::from_rsa_pem(&pem()?).map_err(wrong)?),
        JwtAlgorithm::Rs512 => (Algorithm::RS512, DecodingKey::from_rsa_pem(&pem()?).map_err(wrong)?),
        JwtAlgorithm::Es256 => (Algorithm::ES256, DecodingKey::from_ec_pem(&pem()?).map_err(wrong)?),
        JwtAlgorithm::Es384 => (Algorithm::ES384, DecodingKey::from_ec_pem(&pem()?).map_err(wrong)?),
    };
    let mut validation = Validation::new(algorithm);
    // Times are compared here, because the crate would read another clock.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    if !jwt.issuer.is_empty() {
        validation.set_issuer(&[&jwt.issuer]);
        validation.required_spec_claims.insert("iss".into());
    }
    if !jwt.audience.is_empty() {
        validation.set_audience(&[&jwt.audience]);
        validation.required_spec_claims.insert("aud".into());
    }
    Ok(Some(Token {
        field: jwt.field.clone(),
        key,
        validation,
        claim: jwt.claim.clone(),
        values: jwt.values.clone(),
        leeway: jwt.leeway,
    }))
}

impl Hashes {
    /// Whether `hash` is one of them, in constant time.
    fn hold(&self, hash: &[u8; 32]) -> bool {
        self.0.iter().fold(Choice::from(0), |found, one| found | one.ct_eq(hash)).into()
    }
}

impl Signs {
    /// Cheapest first.
    fn are_of<'h>(&'h self, seen: &mut Seen<'h>, client: IpAddr, now: Timestamp) -> bool {
        self.client.iter().any(|net| net.contains(&client))
            || self.key.as_ref().is_some_and(|(field, hashes)| {
                let mut keys = seen.fields.get_all(Name::of(field)).map(bearer);
                keys.any(|key| hashes.hold(&seen.hash(key)))
            })
            || self.cookie.as_ref().is_some_and(|(name, hashes)| {
                cookies(seen.fields, name).any(|value| hashes.hold(&seen.hash(value)))
            })
            || self.token.as_ref().is_some_and(|token| {
                // Only a single field counts: a signature takes long to verify, and a head could have a
                // hundred of them.
                let mut tokens = seen.fields.get_all(Name::of(&token.field));
                let only = tokens.next().filter(|_| tokens.next().is_none());
                only.is_some_and(|value| token.is_of(bearer(value), now))
            })
    }
}

/// The value after `Bearer`, or the whole value without it.
fn bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
        _ => value,
    }
}

pub(crate) fn cookies<'h>(fields: &'h Fields, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let pairs = fields.get_all(name::COOKIE).flat_map(|line| line.split(|b| *b == b';'));
    pairs.filter_map(move |pair| {
        let rest = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })
}

impl Token {
    fn is_of(&self, text: &[u8], now: Timestamp) -> bool {
        // A token has three parts; anything else is not worth the crate's copying and parsing.
        if text.len() > MAX_TOKEN || text.iter().filter(|b| **b == b'.').count() != 2 {
            return false;
        }
        let Ok(token) = jsonwebtoken::decode::<Value>(text, &self.key, &self.validation) else {
            return false;
        };
        let claims = &token.claims;
        let now = now.as_micros() as f64 / 1e6;
        let leeway = self.leeway.as_secs_f64();
        let is_current = claims["exp"].as_f64().is_some_and(|exp| now < exp + leeway)
            && match &claims["nbf"] {
                Value::Null => true,
                // A value that is no number is not accepted.
                nbf => nbf.as_f64().is_some_and(|nbf| nbf <= now + leeway),
            };
        let is_wanted = |value: &Value| match value {
            Value::String(text) => self.values.contains(text),
            Value::Number(number) => self.values.contains(&number.to_string()),
            Value::Bool(flag) => self.values.contains(&flag.to_string()),
            _ => false,
        };
        is_current
            && match &claims[self.claim.as_str()] {
                Value::Array(all) => all.iter().any(is_wanted),
                one => is_wanted(one),
            }
    }
}

#[cfg(test)]
mod tests;
