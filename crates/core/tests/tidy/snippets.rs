//! The rules on small snippets: each must find what it is for, and nothing in what is allowed.

use super::source::Source;
use super::{layers, limits, text};

const CORE: &str = "crates/core/src/slots.rs";
const GATEWAY: &str = "crates/gateway/src/proxy/serve.rs";
const TEST: &str = "crates/core/tests/slots.rs";

/// Path, text, and how many findings the rules for Rust sources must have.
const RUST: &[(&str, &str, usize)] = &[
    (CORE, "//! Doc.\nfn f() {}\n", 0),
    (CORE, "fn f() {}\n", 1),
    (CORE, "#![cfg(loom)]\n\n//! Doc.\nfn f() {}\n", 0),
    (CORE, "//! Doc.\nfn f() { let t = Instant::now(); }\n", 1),
    (CORE, "//! Doc.\n// Never Instant::now, nor tokio.\nfn f() { g(\"Instant::now\"); }\n", 0),
    (CORE, "//! Doc.\n/* tokio /* hyper */ std::fs */\nfn f() {}\n", 0),
    (CORE, "//! Doc.\nconst T: &str = r#\"tokio \" hyper\"#;\nuse tokio::time;\n", 1),
    (CORE, "//! Doc.\nfn f() { let q = '\"'; hyper::x(); let q = '\"'; }\n", 1),
    (CORE, "//! Doc.\nfn f<'a>(x: &'a str) { std::fs::read(x); }\n", 1),
    (CORE, "//! Doc.\nasync fn f() {}\n", 1),
    (CORE, "//! Doc.\nfn f() { my_tokio(); }\n", 0),
    (CORE, "//! Doc.\nfn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n", 0),
    (CORE, "//! Doc.\nfn f() { todo!() }\n", 1),
    (CORE, "//! Doc.\nfn f() { dbg!(1); unimplemented!() }\n", 2),
    (GATEWAY, "//! Doc.\nuse std::time::Instant;\nfn f() { Instant::now(); }\n", 1),
    (GATEWAY, "//! Doc.\nuse std::time::{Duration, Instant};\n", 1),
    (GATEWAY, "//! Doc.\nuse std::time::Duration;\n", 0),
    (GATEWAY, "//! Doc.\nuse tokio::time::Instant;\nfn f() { Instant::now(); }\n", 0),
    (GATEWAY, "//! Doc.\nfn f() { tokio::time::Instant::now(); }\n", 0),
    (GATEWAY, "//! Doc.\nfn f() { std::time::SystemTime::now(); }\n", 1),
    ("crates/gateway/src/base/clock.rs", "//! Doc.\nfn f() { std::time::SystemTime::now(); }\n", 0),
    (GATEWAY, "//! Doc.\nfn f() -> StatusCode { StatusCode::OK }\n", 1),
    ("crates/gateway/src/proxy/respond.rs", "//! Doc.\nfn f() -> StatusCode { StatusCode::OK }\n", 0),
    ("crates/gateway/src/upstream/dispatch/head.rs", "//! Doc.\nfn f(s: StatusCode) {}\n", 0),
    ("crates/gateway/src/http/wire/parse.rs", "//! Doc.\nfn f() -> StatusCode { StatusCode::OK }\n", 0),
    (TEST, "//! Doc.\n#[test]\n#[ignore]\nfn f() {}\n", 1),
    (TEST, "//! Doc.\n#[test]\nfn f() { std::thread::sleep(d); }\n", 1),
    ("crates/lab/src/demo.rs", "//! Doc.\nfn f() { std::thread::sleep(d); }\n", 0),
];

#[test]
fn rust_rules_find_what_they_are_for() {
    for (path, snippet, expected) in RUST {
        let source = Source::new(path, snippet);
        let findings: Vec<String> =
            layers::check(&source).iter().chain(&limits::check(&source)).map(ToString::to_string).collect();
        assert_eq!(findings.len(), *expected, "{snippet}\n{findings:#?}");
    }
}

#[test]
fn size_rules_find_the_long_and_accept_a_reason() {
    let lines = |n: usize| "    g();\n".repeat(n);
    let function = |n: usize| format!("fn f(a: [u8; 2]) -> u8\n{{\n{}}}\n", lines(n - 3));
    let cases = [
        (format!("//! Doc.\n{}", function(70)), 0),
        (format!("//! Doc.\n{}", function(71)), 1),
        (format!("//! Doc.\n// Long because: a table.\n#[inline]\n{}", function(71)), 0),
        // A trait's function without a body is no function of many lines.
        (format!("//! Doc.\ntrait T {{\n    fn f(&self);\n}}\n{}", function(70)), 0),
    ];
    for (snippet, expected) in cases {
        let findings = limits::check(&Source::new(CORE, &snippet));
        let start = &snippet[..60];
        assert_eq!(
            findings.len(),
            expected,
            "{start}: {:?}",
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        );
    }
}

#[test]
fn manifest_rules_keep_the_direction() {
    let cases = [
        (
            "crates/core/Cargo.toml",
            "[dependencies]\nsha2.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n",
            0,
        ),
        ("crates/core/Cargo.toml", "[dependencies]\ntokio.workspace = true\n", 1),
        ("crates/core/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n", 1),
        ("crates/core/Cargo.toml", "[dev-dependencies]\ntidegate-gateway.workspace = true\n", 1),
        ("crates/gateway/Cargo.toml", "[dependencies]\ntidegate-core.workspace = true\ntokio = \"1\"\n", 0),
        ("crates/gateway/Cargo.toml", "[dependencies]\ntidegate-lab.workspace = true\n", 1),
        ("crates/cli/Cargo.toml", "[dependencies]\ntidegate-lab.workspace = true\n", 0),
        ("crates/extra/Cargo.toml", "[dependencies]\n", 1),
    ];
    for (path, manifest, expected) in cases {
        assert_eq!(layers::check_manifest(path, manifest).len(), expected, "{path}: {manifest}");
    }
}

#[test]
fn module_rules_find_the_missing_and_the_undeclared() {
    let source = |path: &str, text: &str| Source::new(path, text);
    let lib = "crates/core/src/lib.rs";
    let cases = [
        (
            vec![
                source(lib, "pub mod a;\nmod b;\n"),
                source("crates/core/src/a.rs", ""),
                source("crates/core/src/b/mod.rs", ""),
            ],
            0,
        ),
        (vec![source(lib, "pub mod a;\n")], 1),
        (vec![source(lib, "// mod a;\n"), source("crates/core/src/a.rs", "")], 1),
        (
            vec![
                source(lib, "mod a;\n"),
                source("crates/core/src/a.rs", "mod b;\n"),
                source("crates/core/src/a/b.rs", ""),
            ],
            0,
        ),
        (vec![source("crates/core/tests/slots.rs", "")], 0),
    ];
    for (i, (sources, expected)) in cases.iter().enumerate() {
        assert_eq!(layers::check_modules(sources).len(), *expected, "case {i}");
    }
}

#[test]
fn text_rules_find_white_space_and_machine_paths() {
    let home = |dir: &str| format!("see /{dir}/x\n");
    let cases = [
        ("README.md", "fine\n".to_owned(), 0),
        ("README.md", "space \n".to_owned(), 1),
        ("README.md", "a\tb\n".to_owned(), 1),
        ("crates/gateway/tests/mistakes.txt", "a\tb \n".to_owned(), 0),
        ("README.md", "no end".to_owned(), 1),
        ("README.md", "two ends\n\n".to_owned(), 1),
        ("README.md", "carriage\r\nreturn\r\n".to_owned(), 2),
        ("README.md", home("work"), 1),
        ("README.md", home("root"), 1),
        ("README.md", home("home"), 1),
        ("README.md", "docs/home/x and https://shop.example/home/x\n".to_owned(), 0),
        ("README.md", ["registry.", "npmjs.org\n"].concat(), 1),
        ("Cargo.lock", ["registry.", "npmjs.org\n"].concat(), 0),
    ];
    for (path, snippet, expected) in cases {
        let findings: Vec<String> = text::check(path, &snippet).iter().map(ToString::to_string).collect();
        assert_eq!(findings.len(), expected, "{snippet:?}: {findings:?}");
    }
}
