//! Class rules: what they match, other spellings of a path, and invalid rules.

use std::net::IpAddr;

use proptest::prelude::*;
use tidegate_core::classify::*;
use tidegate_core::units::ClassId;

use super::heap;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|v| v.to_string()).collect()
}

fn pairs(values: &[(&str, &str)]) -> Vec<(String, String)> {
    values.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
}

fn only(rule: ClassRule) -> Classifier {
    Rules::compile(vec![rule]).unwrap()
}

fn head<'a>(path: &'a str) -> RequestHead<'a> {
    RequestHead { method: "GET", path, query: "", host: "shop.example", client: LOCAL, fields: &[] }
}

/// Whether the one rule holds.
fn holds(classifier: &Classifier, head: &RequestHead<'_>) -> bool {
    classifier.classify(head) == ClassId(0)
}

#[test]
fn path_globs() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "/search*",
            &["/search", "/search-x", "/searching"],
            &["/search/x", "/searc", "/a/search", "/Search"],
        ),
        ("/search", &["/search"], &["/search/", "/search-x", "/"]),
        (
            "/checkout/**",
            &["/checkout", "/checkout/", "/checkout/a/b"],
            &["/checkout-x", "/check", "/a/checkout"],
        ),
        ("/a/*/c", &["/a/b/c", "/a/bb/c"], &["/a/c", "/a/b/b/c", "/a/b/c/"]),
        ("/a/**/c", &["/a/c", "/a/b/c", "/a/b/b/c"], &["/a", "/a/b", "/ac", "/a/b/cc"]),
        ("/**", &["/", "/a", "/a/b"], &["*"]),
        ("**", &["/", "/a/b", "*"], &[]),
        ("*", &["*"], &["/", "/a"]),
        ("/**.php", &["/a.php", "/a/b.php", "/.php"], &["/a.php5", "/php"]),
        ("/item-???", &["/item-123"], &["/item-12", "/item-1/3", "/item-1234"]),
        ("/*/*", &["/a/b", "/a/"], &["/a", "/a/b/c"]),
        ("/a*b*c", &["/abc", "/aXbXc", "/abbcc"], &["/ab", "/acb", "/a/bc"]),
        ("/caf%C3%A9", &["/café", "/caf%C3%A9", "/caf%c3%a9"], &["/cafe"]),
        ("/café", &["/café", "/caf%C3%A9"], &["/caf"]),
        ("/a%2Ab", &["/a*b", "/a%2ab"], &["/aXb"]),
        ("/a%2fb", &["/a%2Fb", "/a%2fb"], &["/a/b"]),
        ("/100%", &["/100%"], &["/100"]),
        ("/a;b", &["/a;b", "/a%3Bb"], &["/a"]),
    ];
    for (glob, yes, no) in cases {
        let rule = only(ClassRule { path: strings(&[glob]), ..ClassRule::default() });
        for path in *yes {
            assert!(holds(&rule, &head(path)), "{glob} matches {path}");
        }
        for path in *no {
            assert!(!holds(&rule, &head(path)), "{glob} does not match {path}");
        }
    }
}

#[test]
fn another_spelling_of_a_path_does_not_evade_a_rule() {
    let rule = only(ClassRule { path: strings(&["/checkout/**"]), ..ClassRule::default() });
    let same = [
        "/%63heckout",
        "/%63%68%65%63%6b%6f%75%74",
        "/a/../checkout",
        "/../checkout",
        "/./checkout",
        "/a/%2e%2E/checkout",
        "/a/.%2e/checkout",
        "/%2e/checkout",
        "//checkout",
        "/a/b/../../checkout/pay",
        "/checkout/.",
        "/checkout/x/..",
        "/a/..//./checkout",
    ];
    for path in same {
        assert!(holds(&rule, &head(path)), "{path}");
    }
    let other = [
        "/%2563heckout",
        "/a/..checkout",
        "/checkout/..",
        "/checkout/../a",
        "/a%2F..%2Fcheckout",
        "/.checkout",
    ];
    for path in other {
        assert!(!holds(&rule, &head(path)), "{path}");
    }
    let root = only(ClassRule { path: strings(&["/"]), ..ClassRule::default() });
    for path in ["/", "", "//", "/.", "/..", "/a/..", "/a/../", "/%2e", "/a/../../.."] {
        assert!(holds(&root, &head(path)), "{path:?} is the root");
    }
}

#[test]
fn hosts() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "shop.example",
            &["shop.example", "SHOP.example:8080", "shop.example."],
            &["a.shop.example", "shop.exampl", ""],
        ),
        (
            "*.shop.example",
            &["a.shop.example", "a.b.SHOP.example:1"],
            &["shop.example", ".shop.example", "ashop.example"],
        ),
        ("Shop.Example.", &["shop.example"], &["shop"]),
        ("[2001:db8::1]", &["[2001:db8::1]", "[2001:DB8::1]:443"], &["[2001:db8::2]", "2001"]),
    ];
    for (pattern, yes, no) in cases {
        let rule = only(ClassRule { host: strings(&[pattern]), ..ClassRule::default() });
        for host in *yes {
            assert!(holds(&rule, &RequestHead { host, ..head("/") }), "{pattern} matches {host}");
        }
        for host in *no {
            assert!(!holds(&rule, &RequestHead { host, ..head("/") }), "{pattern} does not match {host}");
        }
    }
}

#[test]
fn queries() {
    type Conditions<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(Conditions<'_>, &[&str], &[&str])] = &[
        (&[("q", "*")], &["q=", "q", "a=1&q=2", "%71=2", "q=%ff"], &["", "qq=1", "Q=1", "a=q"]),
        (&[("q", "a b*")], &["q=a+b", "q=a%20bc", "q=x&q=a+b"], &["q=ab", "q=a%2Bb"]),
        (&[("full name", "é")], &["full+name=%C3%A9", "full%20name=é"], &["fullname=é"]),
        (&[("a", "1"), ("a", "2")], &["a=1", "a=2", "a=3&a=2"], &["a=3", "a=12"]),
        (&[("a", "1"), ("b", "2")], &["a=1&b=2", "b=2&a=1"], &["a=1", "b=2", "a=2&b=1"]),
        (&[("n", "50%")], &["n=50%", "n=50%25"], &["n=50"]),
    ];
    for (conditions, yes, no) in cases {
        let rule = only(ClassRule { query: pairs(conditions), ..ClassRule::default() });
        for query in *yes {
            assert!(holds(&rule, &RequestHead { query, ..head("/") }), "{conditions:?} matches {query}");
        }
        for query in *no {
            assert!(
                !holds(&rule, &RequestHead { query, ..head("/") }),
                "{conditions:?} does not match {query}"
            );
        }
    }
}

#[test]
fn headers_and_cookies() {
    type Fields<'a> = &'a [(&'a str, &'a [u8])];
    let accept = ClassRule { header: pairs(&[("Accept", "*json*")]), ..ClassRule::default() };
    let tier = ClassRule { cookie: pairs(&[("tier", "gold"), ("tier", "silver-?")]), ..ClassRule::default() };
    let both = ClassRule { header: pairs(&[("x-a", "1"), ("x-b", "*")]), ..ClassRule::default() };
    let cases: &[(&ClassRule, Fields<'_>, bool)] = &[
        (&accept, &[("ACCEPT", b"application/json; q=1")], true),
        (&accept, &[("accept", b"text/html"), ("accept", b" application/json")], true),
        (&accept, &[("accept", b"text/html"), ("x-accept", b"json")], false),
        (&accept, &[("accept", b"\xff\xfejson\x00")], true),
        (&accept, &[], false),
        (&both, &[("x-a", b"1"), ("x-b", b"")], true),
        (&both, &[("x-a", b"1")], false),
        (&both, &[("x-a", b"2"), ("x-b", b"2")], false),
        (&tier, &[("cookie", b"a=1; tier=gold")], true),
        (&tier, &[("cookie", b"a=1"), ("cookie", b"tier=\"silver-1\"")], true),
        (&tier, &[("cookie", b"tier=goldfish; Tier=gold; tier = gold")], true),
        (&tier, &[("cookie", b"tier=silver; xtier=gold; tier; =gold; ;")], false),
        (&tier, &[("cookie", b"tier=\"")], false),
    ];
    for (rule, fields, expected) in cases {
        let fields = fields.to_vec();
        let fields: &dyn tidegate_core::classify::Fields = &FieldList(&fields);
        let got = holds(&only((*rule).clone()), &RequestHead { fields, ..head("/") });
        assert_eq!(got, *expected, "{rule:?}");
    }
}

/// As a data plane would adapt its own header map.
struct FieldList<'a>(&'a [(&'a str, &'a [u8])]);

impl Fields for FieldList<'_> {
    fn any(&self, name: &str, test: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.0.any(name, test)
    }
}

#[test]
fn methods_and_client_networks() {
    let rule = only(ClassRule {
        method: strings(&["GET", "HEAD"]),
        client: ["10.1.2.3/8", "2001:db8::/32"].map(|n| n.parse().unwrap()).to_vec(),
        ..ClassRule::default()
    });
    let cases = [
        ("GET", "10.9.9.9", true),
        ("HEAD", "::ffff:10.9.9.9", true),
        ("GET", "2001:db8:1::1", true),
        ("GET", "11.0.0.1", false),
        ("get", "10.9.9.9", false),
        ("POST", "10.9.9.9", false),
    ];
    for (method, client, expected) in cases {
        let head = RequestHead { method, client: client.parse().unwrap(), ..head("/") };
        assert_eq!(holds(&rule, &head), expected, "{method} from {client}");
    }
}

#[test]
fn the_first_rule_that_holds_wins_and_the_last_class_is_the_default() {
    let path = |p: &str| ClassRule { path: strings(&[p]), ..ClassRule::default() };
    let post = ClassRule { method: strings(&["POST"]), ..path("/a/**") };
    let classifier = Rules::compile(vec![post, path("/a/b"), path("/a/**")]).unwrap();
    assert_eq!((classifier.classes(), classifier.default_class()), (4, ClassId(3)));
    let cases = [("POST", "/a/b", 0), ("GET", "/a/b", 1), ("GET", "/a/c", 2), ("POST", "/b", 3)];
    for (method, path, class) in cases {
        assert_eq!(
            classifier.classify(&RequestHead { method, ..head(path) }),
            ClassId(class),
            "{method} {path}"
        );
    }
    let everything = Rules::compile(vec![ClassRule::default()]).unwrap();
    assert_eq!(everything.classify(&head("/x")), ClassId(0), "a rule without conditions holds for all");
    assert_eq!(Rules::compile(vec![]).unwrap().classify(&head("/x")), ClassId(0));
}

#[test]
fn mistakes_are_reported_with_class_and_field() {
    let rule = ClassRule::default;
    let long = format!("/{}", "?".repeat(256));
    let cases: &[(ClassRule, &str, &str)] = &[
        (ClassRule { method: strings(&["GET", "get"]), ..rule() }, "method", "get"),
        (ClassRule { method: strings(&["GET POST"]), ..rule() }, "method", "GET POST"),
        (ClassRule { method: strings(&[""]), ..rule() }, "method", ""),
        (ClassRule { path: strings(&["search"]), ..rule() }, "path", "search"),
        (ClassRule { path: strings(&["/ok", &long]), ..rule() }, "path", &long),
        (ClassRule { host: strings(&["a.example:80"]), ..rule() }, "host", "a.example:80"),
        (ClassRule { host: strings(&["https://a.example"]), ..rule() }, "host", "https://a.example"),
        (ClassRule { host: strings(&["a.*.example"]), ..rule() }, "host", "a.*.example"),
        (ClassRule { host: strings(&["*."]), ..rule() }, "host", "*."),
        (ClassRule { host: strings(&["*"]), ..rule() }, "host", "*"),
        (ClassRule { header: pairs(&[("x y", "*")]), ..rule() }, "header", "x y"),
        (ClassRule { cookie: pairs(&[("a=b", "*")]), ..rule() }, "cookie", "a=b"),
        (ClassRule { query: pairs(&[("", "*")]), ..rule() }, "query", ""),
    ];
    for (bad, field, got) in cases {
        let error = Rules::compile(vec![rule(), bad.clone()]).unwrap_err();
        assert_eq!((error.class, error.field, error.got.as_str()), (1, *field, *got));
        assert!(!error.expected.is_empty());
    }
    let all: Vec<_> = cases.iter().map(|(bad, ..)| bad.clone()).collect();
    let found: Vec<_> = Rules::check(&all).into_iter().map(|e| (e.class, e.field, e.got)).collect();
    let expected: Vec<_> =
        cases.iter().enumerate().map(|(i, (_, f, got))| (i, *f, got.to_string())).collect();
    assert_eq!(found, expected, "all mistakes at once");
    assert_eq!(Rules::check(&[rule()]), []);

    assert!(Rules::compile(vec![rule(); 255]).is_ok());
    let error = Rules::compile(vec![rule(); 256]).unwrap_err();
    assert_eq!(error.to_string(), "class 255, class: expected at most 255 classes, got `256`");
}

/// A glob by its definition: tries every way to split the text.
fn slow_match(pattern: &[u8], text: &[u8]) -> bool {
    let rest_of = |n| (0..=text.len()).filter(move |&i| i <= n).map(|i| &text[i..]);
    let segment = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
    match pattern {
        [] => text.is_empty(),
        [b'/', b'*', b'*', rest @ ..] if rest.is_empty() || rest[0] == b'/' => {
            let deeper =
                text.first() == Some(&b'/') && (1..=text.len()).any(|i| slow_match(rest, &text[i..]));
            slow_match(rest, text) || deeper
        }
        [b'*', b'*', rest @ ..] => rest_of(text.len()).any(|t| slow_match(rest, t)),
        [b'*', rest @ ..] => rest_of(segment).any(|t| slow_match(rest, t)),
        [b'?', rest @ ..] => segment > 0 && slow_match(rest, &text[1..]),
        [b, rest @ ..] => text.first() == Some(b) && slow_match(rest, &text[1..]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn globs_match_as_defined(pattern in "/[ab/*?]{0,8}", text in "(/[ab]{1,2}){0,4}/?") {
        let rule = only(ClassRule { path: vec![pattern.clone()], ..ClassRule::default() });
        let text = if text.is_empty() { "/".into() } else { text };
        let expected = slow_match(pattern.as_bytes(), text.as_bytes());
        prop_assert_eq!(holds(&rule, &head(&text)), expected, "{} on {}", pattern, text);
    }

    /// Escaped letters and inserted detours do not change the class.
    #[test]
    fn spelling_does_not_matter(
        segments in prop::collection::vec("[a-z]{1,6}", 1..5),
        noise in prop::collection::vec((0..5usize, any::<bool>()), 1..5),
    ) {
        let plain: String = segments.iter().map(|s| format!("/{s}")).collect();
        let mut odd = String::new();
        for (i, s) in segments.iter().enumerate() {
            let (detour, escape) = noise[i % noise.len()];
            odd += ["", "/.", "/x/..", "/", "/%2e/y/%2E%2e"][detour];
            odd.push('/');
            match escape {
                true => s.bytes().for_each(|b| odd += &format!("%{b:02x}")),
                false => odd += s,
            }
        }
        let rule = only(ClassRule { path: vec![plain.clone()], ..ClassRule::default() });
        prop_assert!(holds(&rule, &head(&odd)), "{} is {}", odd, plain);
    }
}

#[test]
fn the_common_case_allocates_nothing() {
    let classifier = only(ClassRule {
        method: strings(&["GET"]),
        path: strings(&["/a/**", "/search*"]),
        host: strings(&["*.example"]),
        header: pairs(&[("accept", "*html*")]),
        cookie: pairs(&[("tier", "*")]),
        query: pairs(&[("q", "a b")]),
        client: vec!["127.0.0.0/8".parse().unwrap()],
    });
    let fields: [(&str, &[u8]); 2] = [("Accept", b"text/html"), ("Cookie", b"x=y; tier=gold")];
    let usual = RequestHead { query: "x=1&q=a+b", fields: &fields, ..head("/a/.well-known/..x/y.z") };
    let odd = RequestHead { path: "/a/%62", ..usual };
    let before = heap::allocations();
    assert!(holds(&classifier, &usual));
    assert_eq!(heap::allocations(), before);
    assert!(holds(&classifier, &odd));
    assert_eq!(heap::allocations(), before + 1, "an unusual spelling costs one buffer");
}
