//! The rules on small snippets: each must find what it is for, and nothing in what is allowed.

use super::graph::Graph;
use super::source::Source;
use super::{layers, limits, programs, text};

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
    (CORE, "//! Doc.\nfn f() { std::env::var(x); }\n", 1),
    ("crates/core/src/mutants.rs", "//! Doc.\nfn f() { std::env::var(x); std::fs::read(x); }\n", 1),
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
    ("crates/gateway/src/http/http1/read.rs", "//! Doc.\nfn f() -> StatusCode { StatusCode::OK }\n", 0),
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
    let faults = |section: &str| {
        format!("[{section}]\ntidegate-core = {{ workspace = true, features = [\"mutants\"] }}\n")
    };
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
        ("crates/lab/Cargo.toml", &faults("dependencies"), 1),
        ("crates/lab/Cargo.toml", &faults("dev-dependencies"), 0),
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

#[test]
fn the_width_rule_counts_comments_and_not_strings() {
    let max = limits::max_width("edition = \"2024\"\nmax_width = 20\n");
    let cases = [
        ("// 20 columns, häöü!\n", 0),
        ("// one more than that\n", 1),
        ("//! | a row | of a table |\n", 0),
        ("f(1); // one more too\n", 1),
        ("let long_name = 1234;\n", 1),
        ("f(\"a text of many words\");\n", 0),
        ("f(r#\"so \"long\" is a text\"#);\n", 0),
        ("f(\"a text\"); // and more\n", 0),
        ("f(\"a text\"); // and more, 1\n", 1),
    ];
    for (snippet, expected) in cases {
        assert_eq!(limits::check_width(&Source::new(CORE, snippet), max).len(), expected, "{snippet}");
    }
}

#[test]
fn the_rule_of_programs_finds_what_nobody_installs() {
    let script = "f() { g:h; }\n\npackages() {\n  local list=(git:git sh:dash)\n  list+=(nginx:nginx c++:gcc)\n\
                  need_packages \"${list[@]}\"\n}\n\nother() { i:j; }\n";
    let installed = programs::installed(script);
    assert_eq!(installed.iter().map(String::as_str).collect::<Vec<_>>(), ["c++", "git", "nginx", "sh"]);
    let cases = [
        ("fn f() { Command::new(\"git\"); }\n", 0),
        ("fn f() { std::process::Command::new(\"dash\"); }\n", 1),
        ("fn f(é: u8) { g('é', \"é\"); Command::new(\"sh\"); Command::new(\"openssl\"); }\n", 1),
        ("fn f() { Command::new(program); Command::new(env!(\"CARGO_BIN_EXE_x\")); }\n", 0),
        ("// Command::new(\"g\")\nconst A: &str = \"Command::new(\\\"g\\\")\";\n", 0),
    ];
    for (snippet, expected) in cases {
        assert_eq!(programs::check(&Source::new(TEST, snippet), &installed).len(), expected, "{snippet}");
    }
}

/// What the graph of these files of the crate, by their paths below `src`, is found to break.
fn graph(krate: &str, files: &[(&str, &str)]) -> Vec<String> {
    let paths: Vec<_> =
        files.iter().map(|(path, text)| (format!("crates/{krate}/src/{path}"), *text)).collect();
    let graph = Graph::new(krate, paths.iter().map(|(path, text)| (path.as_str(), *text)));
    graph.check().iter().map(ToString::to_string).collect()
}

#[test]
fn a_circle_of_files_is_found_through_imports_paths_and_re_exports() {
    let root = ("lib.rs", "pub mod a;\nmod b;\nmod c;\n");
    let a = ("a.rs", "use crate::b::B;\npub struct A(B);\n");
    let free = [root, a, ("b.rs", "pub use crate::c::C;\npub struct B(C);\n"), ("c.rs", "pub struct C;\n")];
    assert_eq!(graph("lab", &free), [""; 0]);
    let direct = [root, a, ("b.rs", "pub struct B;\nfn f() { crate::a::g(); }\n")];
    assert_eq!(
        graph("lab", &direct),
        [
            "crates/lab/src/a.rs:1: in a circle of 2 files: imports B from crates/lab/src/b.rs",
            "crates/lab/src/b.rs:2: in a circle of 2 files: imports g from crates/lab/src/a.rs",
        ]
    );
    let through = [
        root,
        a,
        ("b.rs", "use crate::c::C;\npub struct B(C);\n"),
        ("c.rs", "use super::a::A;\npub struct C(A);\n"),
    ];
    let found = graph("lab", &through);
    assert!(
        found.len() == 3 && found.iter().all(|finding| finding.contains("a circle of 3 files")),
        "{found:?}"
    );
    // `a` names what `b` re-exports: that is `c`'s, which imports nothing of `a`'s.
    let re_exported = [
        root,
        ("a.rs", "use crate::b::C;\npub struct A(C);\n"),
        ("b.rs", "pub use crate::c::C;\nuse crate::a::A;\n"),
        ("c.rs", "pub struct C;\n"),
    ];
    assert_eq!(graph("lab", &re_exported), [""; 0]);
    // A child is a part of its parent, and tests may import what they like.
    let parts = [
        ("lib.rs", "mod a;\n"),
        ("a.rs", "mod b;\nuse b::B;\npub struct A(B);\n#[cfg(test)]\nmod tests { use crate::c::C; }\n"),
        ("a/b.rs", "use super::A;\npub struct B;\n"),
        ("c.rs", "use crate::a::A;\npub struct C;\n"),
    ];
    assert_eq!(graph("lab", &parts), [""; 0]);
}

#[test]
fn an_import_from_a_layer_above_is_found() {
    let files = |base: &'static str| {
        [
            ("lib.rs", "mod base;\nmod proxy;\nmod control;\n"),
            ("base/mod.rs", "pub mod clock;\n"),
            ("base/clock.rs", base),
            ("proxy/mod.rs", "use crate::base::clock::Clock;\npub struct Proxy(Clock);\n"),
            ("control/mod.rs", "use crate::base::clock::Clock;\npub struct Tick(Clock);\n"),
        ]
    };
    assert_eq!(graph("gateway", &files("pub struct Clock;\n")), [""; 0]);
    let upwards = graph("gateway", &files("pub struct Clock;\nfn f() -> crate::control::Tick { todo() }\n"));
    let finding = "crates/gateway/src/base/clock.rs:2: base must not import control (Tick of crates/gateway/src/control/mod.rs)";
    assert!(upwards.iter().any(|found| found == finding), "{upwards:?}");
    let mut sideways = files("pub struct Clock;\n");
    sideways[4].1 = "use crate::proxy::Proxy;\npub struct Tick(Proxy);\n";
    let finding = "crates/gateway/src/control/mod.rs:1: control must not import proxy (Proxy of crates/gateway/src/proxy/mod.rs)";
    assert_eq!(graph("gateway", &sideways), [finding]);
    // Folders of another crate have no layers.
    assert_eq!(graph("lab", &sideways), [""; 0]);
}

#[test]
fn methods_far_from_their_type_are_found() {
    let files = |path: &'static str, text: &'static str| {
        [
            ("lib.rs", "mod room;\nmod gate;\n"),
            ("room.rs", "mod slots;\npub struct Room;\n"),
            ("room/slots.rs", "pub struct Slots;\n"),
            (path, text),
        ]
    };
    let far =
        graph("core", &files("gate.rs", "use crate::room::Room;\nimpl Room {\n    fn f(&self) {}\n}\n"));
    assert_eq!(far, ["crates/core/src/gate.rs:2: methods of Room stand outside crates/core/src/room.rs"]);
    let by_path = graph("core", &files("gate.rs", "impl<T: Fn() -> u8> crate::room::slots::Slots {}\n"));
    assert_eq!(
        by_path,
        ["crates/core/src/gate.rs:1: methods of Slots stand outside crates/core/src/room/slots.rs"]
    );
    for (path, text) in [
        // In the type's own folder, a trait's methods, and `impl` as a type.
        ("room/tick.rs", "use super::Room;\nimpl Room {}\n"),
        ("room/tick.rs", "use super::slots::Slots;\nimpl Slots {}\n"),
        ("gate.rs", "use crate::room::Room;\nimpl Clone for Room {}\nfn f() -> impl Iterator {}\n"),
        ("gate.rs", "pub struct Gate;\nimpl Gate {}\n"),
    ] {
        assert_eq!(graph("core", &files(path, text)), [""; 0], "{path}: {text}");
    }
}
