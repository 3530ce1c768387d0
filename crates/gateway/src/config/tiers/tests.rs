//! The levels of requests, and invalid tokens.

use jsonwebtoken::{EncodingKey, Header};
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const SECRET: &str = "a secret that is at least 32 characters long";

/// SHA-256 of `gold-key` and of `silver-key`.
fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn settings(tiers: &str) -> Settings {
    let text = format!("origin.replicas = \"app:8000\"\n[[class]]\nname = \"fast\"\npriority = 0\n{tiers}");
    Settings::parse(&text, "test").unwrap_or_else(|e| panic!("{}", e[0]))
}

fn tiers(text: &str) -> Tiers {
    Tiers::new(&settings(text), |name| (name == "fast").then_some(ClassId(0))).unwrap()
}

fn fields(lines: &[(&str, &str)]) -> Fields {
    let mut fields = Fields::new();
    lines.iter().for_each(|(name, value)| fields.append((*name).into(), value.as_bytes()));
    fields
}

fn of(tiers: &Tiers, lines: &[(&str, &str)], client: &str) -> u8 {
    tiers.of(&fields(lines), client.parse().unwrap(), NOW).0
}

#[test]
fn the_first_matching_level_is_the_request_s() {
    let tiers = tiers(&format!(
        "[[tier]]\nname = \"gold\"\nclass = \"fast\"\nexempt = true\n[tier.api_key]\nsha256 = [\"{}\", \"{}\"]\n\
         [[tier]]\nname = \"silver\"\n[tier.cookie]\nname = \"plan\"\nsha256 = \"{}\"\n\
         [[tier]]\nname = \"office\"\nclient = \"192.0.2.0/24\"\n",
        hash("other"),
        hash("gold-key"),
        hash("silver-key")
    ));
    let away = "198.51.100.1";
    for (fields, client, wanted) in [
        (&[][..], away, 0),
        (&[("x-api-key", "gold-key")], away, 1),
        (&[("x-api-key", "Bearer gold-key")], away, 1),
        (&[("x-api-key", "gold-ke")], away, 0),
        (&[("x-api-key", "no"), ("x-api-key", "gold-key")], away, 1),
        (&[("authorization", "gold-key")], away, 0),
        (&[("cookie", "a=b; plan=silver-key")], away, 2),
        (&[("cookie", "a=b; plan=gold-key")], away, 0),
        (&[("cookie", "xplan=silver-key")], away, 0),
        (&[("cookie", "plan=silver-key"), ("x-api-key", "gold-key")], "192.0.2.7", 1),
        (&[], "192.0.2.7", 3),
    ] {
        assert_eq!(of(&tiers, fields, client), wanted, "{fields:?} {client}");
    }
    let gold = tiers.get(TierId(1)).unwrap();
    assert_eq!((gold.class, &*gold.name), (Some(ClassId(0)), "gold"));
    assert_eq!((tiers.by_name("office"), tiers.by_name("default")), (Some(TierId(3)), Some(TierId(0))));
    assert!(tiers.get(TierId(0)).is_none() && tiers.get(TierId(4)).is_none());
}

fn signed(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
    format!("Bearer {}", jsonwebtoken::encode(&Header::new(algorithm), claims, key).unwrap())
}

fn good() -> Value {
    json!({ "plan": "gold", "exp": 1_700_000_060, "iss": "https://id.example", "aud": ["shop", "api"] })
}

#[test]
fn a_token_is_valid_if_signature_time_and_issuer_are() {
    let tiers = tiers(&format!(
        "[[tier]]\nname = \"gold\"\n[tier.jwt]\nsecret = \"{SECRET}\"\nclaim = \"plan\"\nvalues = [\"gold\", \"7\"]\n\
         issuer = \"https://id.example\"\naudience = \"shop\"\nleeway = \"30s\"\n"
    ));
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    let with = |name: &str, value: Value| {
        let mut claims = good();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    for (claims, wanted) in [
        (good(), 1),
        (with("plan", json!(["tin", "gold"])), 1),
        (with("plan", json!(7)), 1),
        (with("plan", json!("tin")), 0),
        (with("plan", json!({ "gold": true })), 0),
        (without("plan"), 0),
        (with("exp", json!(1_699_999_971)), 1),
        (with("exp", json!(1_699_999_970)), 0),
        (with("exp", json!("1700000060")), 0),
        (without("exp"), 0),
        (with("nbf", json!(1_700_000_030)), 1),
        (with("nbf", json!(1_700_000_031)), 0),
        (with("nbf", json!("soon")), 0),
        (with("iss", json!("https://evil.example")), 0),
        (without("iss"), 0),
        (with("aud", json!("bank")), 0),
        (without("aud"), 0),
    ] {
        let token = signed(Algorithm::HS256, &key, &claims);
        assert_eq!(of(&tiers, &[("authorization", &token)], "192.0.2.1"), wanted, "{claims}");
    }
    let token = signed(Algorithm::HS256, &key, &good());
    let stranger =
        signed(Algorithm::HS256, &EncodingKey::from_secret(b"another secret of the same length..."), &good());
    let hs512 = signed(Algorithm::HS512, &key, &good());
    let (head, rest) = token.split_once('.').unwrap();
    let (payload, _) = rest.split_once('.').unwrap();
    // {"alg":"none","typ":"JWT"}
    let none = format!("Bearer eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{payload}.");
    let unsigned = format!("{head}.{payload}.");
    for bad in [
        &stranger,
        &hs512,
        &none,
        &unsigned,
        &format!("{token}x"),
        &format!("{token}.x"),
        "Bearer ..",
        "",
        "é.é.é",
    ] {
        assert_eq!(of(&tiers, &[("authorization", bad)], "192.0.2.1"), 0, "{bad}");
    }
    let long = format!("{token}{}", "A".repeat(MAX_TOKEN));
    assert_eq!(of(&tiers, &[("authorization", &long)], "192.0.2.1"), 0);
}

/// Only one signature per request is verified.
#[test]
fn a_repeated_field_has_no_token() {
    let tiers = tiers(&format!(
        "[[tier]]\nname = \"gold\"\n[tier.jwt]\nsecret = \"{SECRET}\"\nclaim = \"plan\"\nvalues = [\"gold\"]\n\
         audience = \"shop\"\n"
    ));
    let token = signed(Algorithm::HS256, &EncodingKey::from_secret(SECRET.as_bytes()), &good());
    let field = ("authorization", token.as_str());
    assert_eq!(of(&tiers, &[field], "192.0.2.1"), 1);
    assert_eq!(of(&tiers, &[field, field], "192.0.2.1"), 0);
}

#[test]
fn public_keys_verify_and_are_never_taken_for_secrets() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/config/tiers/test_keys");
    let private = |name: &str| std::fs::read(format!("{dir}/{name}.pem")).unwrap();
    let keys = [
        ("rs256", "RS256", Algorithm::RS256, EncodingKey::from_rsa_pem(&private("rs256")).unwrap()),
        ("es256", "ES256", Algorithm::ES256, EncodingKey::from_ec_pem(&private("es256")).unwrap()),
    ];
    for (file, name, algorithm, key) in &keys {
        let tiers = tiers(&format!(
            "[[tier]]\nname = \"gold\"\n[tier.jwt]\nalgorithm = \"{name}\"\npublic_key = \"{dir}/{file}.pub.pem\"\n\
             claim = \"plan\"\nvalues = \"gold\"\n"
        ));
        let claims = json!({ "plan": "gold", "exp": 1_700_000_060 });
        let token = signed(*algorithm, key, &claims);
        assert_eq!(of(&tiers, &[("authorization", &token)], "192.0.2.1"), 1, "{name}");
        // The known attack: the public key as the secret of an HS256 token.
        let public = std::fs::read(format!("{dir}/{file}.pub.pem")).unwrap();
        let forged = signed(Algorithm::HS256, &EncodingKey::from_secret(&public), &claims);
        assert_eq!(of(&tiers, &[("authorization", &forged)], "192.0.2.1"), 0, "{name}");
    }
    let wrong = settings(&format!(
        "[[tier]]\nname = \"gold\"\n[tier.jwt]\nalgorithm = \"RS256\"\npublic_key = \"{dir}/es256.pub.pem\"\n\
         claim = \"plan\"\nvalues = \"gold\"\n"
    ));
    assert!(matches!(Tiers::new(&wrong, |_| None), Err(TierError::Key { .. })));
}

#[test]
fn a_quota_is_kept_over_a_reload() {
    let text = |rate: f64| {
        format!("[[tier]]\nname = \"gold\"\nclient = \"192.0.2.0/24\"\nrate = {rate}\nburst = 2\n")
    };
    let old = tiers(&text(0.001));
    let gold = old.get(TierId(1)).unwrap();
    assert_eq!(
        (gold.quota().unwrap().take(Cost::ONE, NOW), gold.quota().unwrap().take(Cost::ONE, NOW)),
        (Ok(()), Ok(()))
    );
    let wait = gold.quota().unwrap().take(Cost::ONE, NOW).unwrap_err();
    assert!((999.0..=1_000.0).contains(&wait.as_secs_f64()), "{wait:?}");
    let mut new = tiers(&text(0.002));
    new.succeed(&old, NOW);
    let wait = new.get(TierId(1)).unwrap().quota().unwrap().take(Cost::ONE, NOW).unwrap_err();
    assert!((499.0..=501.0).contains(&wait.as_secs_f64()), "{wait:?}");
}
