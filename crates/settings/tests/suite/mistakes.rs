//! The messages about mistakes, pinned because people read them.

use tidegate_settings::{Override, Settings, place, tree};

/// A valid origin, which most cases need besides their mistake.
const ORIGIN: &str = "[origin]\nreplicas = \"app:80\"\n";

/// First lines of the messages about `text`. A valid origin is appended if it has none.
fn mistakes(text: &str) -> Vec<String> {
    let whole = if text.contains("[origin]") || text.contains("origin =") {
        text.to_owned()
    } else {
        format!("{text}\n{ORIGIN}")
    };
    match Settings::parse(&whole, "f") {
        Ok(_) => Vec::new(),
        Err(all) => all.iter().map(|m| m.to_string().lines().next().unwrap_or_default().to_owned()).collect(),
    }
}

#[test]
fn the_messages_are_those_of_the_file() {
    let golden = include_str!("mistakes.txt");
    let bless = std::env::var_os("TIDEGATE_BLESS").is_some();
    let mut blessed = String::new();
    let mut cases = 0;
    for case in golden.split("\n====\n").filter(|case| !case.trim().is_empty()) {
        let (text, wanted) = case.split_once("\n----\n").unwrap_or((case, ""));
        let text = text.trim_start_matches('\n');
        let got = mistakes(&text.replace("{HEX}", &"0a".repeat(32)));
        cases += 1;
        if bless {
            blessed.push_str(&format!("{text}\n----\n{}\n====\n", got.join("\n")));
        } else {
            assert_eq!(got.join("\n"), wanted.trim_end(), "for:\n{text}");
        }
    }
    assert!(cases >= 40, "only {cases} cases");
    if bless {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/mistakes.txt"), blessed).unwrap();
    }
}

#[test]
fn a_mistake_shows_its_line_and_a_caret() {
    let text = "[origin]\nreplicas = \"app:80\"\n\n\n\n\n\n\n\n\n[room]\nmax_wait = 30\n";
    let all = Settings::parse(text, "shop.toml").unwrap_err();
    assert_eq!(all.len(), 1);
    assert_eq!(
        all[0].to_string(),
        "shop.toml:12:12: room.max_wait: expected a duration like \"30s\", \"5m\", \"1h30m\" (from 1s to 1d); got 30 (an \
         integer). Write \"30s\"?\n   |\n12 | max_wait = 30\n   |            ^^"
    );
    assert_eq!((all[0].line, all[0].column, all[0].key.as_str()), (12, 12, "room.max_wait"));
}

#[test]
fn a_mistake_in_an_override_names_the_option() {
    let set = |s: &str| Settings::parse_with(ORIGIN, "f", &[Override::set(s)]).unwrap_err()[0].to_string();
    assert_eq!(
        set("room.max_wait=soon"),
        "--set:1:15: room.max_wait: expected a duration like \"30s\", \"5m\", \"1h30m\" (from 1s to 1d); got \"soon\".\n  \
         |\n1 | room.max_wait=soon\n  |               ^^^^"
    );
    assert!(
        set("rom.max_wait=1m")
            .starts_with("--set:1:1: rom: expected a section or `role`; got the unknown name")
    );
    assert!(set("=1m").contains("expected section.key=value; got nothing before the `=`"));
    assert!(
        set("room.max_wait")
            .starts_with("--set:1:1: \"room.max_wait\": expected section.key=value; got no `=`")
    );
    assert!(
        set("class.a.cost=1").contains("class: expected an array of tables"),
        "{}",
        set("class.a.cost=1")
    );
    assert!(set("role.x=1").contains("expected"), "{}", set("role.x=1"));
    let options = [
        Override::origin("ftp://shop:1"),
        Override::option("--capacity", "capacity.rate", "-1"),
        Override::option("--listen", "listen.http", "8080"),
    ];
    let all = Settings::parse_with("", "f", &options).unwrap_err();
    let texts: Vec<_> =
        all.iter().map(|m| m.to_string().lines().next().unwrap_or_default().to_owned()).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].starts_with("--origin:1:1: origin.replicas: expected HOST:PORT"), "{texts:?}");
    assert!(
        texts[1].starts_with("--capacity:1:1: capacity.rate: expected 0 or a number from 0.01 to 1000000"),
        "{texts:?}"
    );
    assert!(texts[2].ends_with("Write \"0.0.0.0:8080\"?"), "{texts:?}");
}

#[test]
fn secrets_are_never_shown() {
    let secret = "5ecre7-5ecre7";
    let hex = "ab".repeat(32);
    for text in [
        format!("[listen]\nadmin_token = \"{secret}\""),
        format!("[listen]\nadmin_tokn = \"{secret}\""),
        format!("[listen]\nadmin_token = \"{secret}"),
        format!("[listen]\nadmin_token = {secret}"),
        format!("[listen]\nadmin_token = [\"{secret}\"]"),
        format!("listen = {{ admin_token = \"{secret}{secret}\", http = 5 }}"),
        format!("listen = {{ admin_token = \"\"\"\n{secret}{secret}\"\"\", http = 5, admin = \"x\" }}"),
        format!("[tokencheck]\nfeedback_token = \"{secret}\""),
        format!("[tokencheck]\nlink_token = \"{secret}\""),
        format!("[room]\nkeys = [\n  \"1:{hex}\", \"1:{hex}\",\n \"{secret}:{hex}\", 7,\n]"),
        format!("[room]\nkeys = [\n  \"1:{hex}\", \"2:{hex},\n]"),
        format!("[room]\nkyes = [ \"1:{hex}\" ]"),
        format!("[room]\nmax_wait = 5 # admin_token = {secret}"),
        format!("adminpassword = \"{secret}\""),
    ] {
        let all = Settings::parse(&format!("{text}\n{ORIGIN}"), "f").unwrap_err();
        for mistake in all {
            let shown = format!("{mistake} {mistake:?}");
            assert!(!shown.contains(secret) && !shown.contains("abababab"), "{text}\n--\n{shown}");
        }
    }
    let set = Override::set(&format!("listen.admin_token={secret}"));
    let shown = format!("{:?}", Settings::parse_with(ORIGIN, "f", &[set]).unwrap_err());
    assert!(!shown.contains(secret), "{shown}");
    let text = format!("listen.admin_token = \"{secret}{secret}\"\n{ORIGIN}\n[room]\nkeys = \"1:{hex}\"");
    let shown = format!("{:?}", Settings::parse(&text, "f").unwrap());
    assert!(!shown.contains(secret) && !shown.contains(&hex), "{shown}");
}

#[test]
fn all_mistakes_are_reported_in_order_up_to_a_maximum() {
    let text =
        "[listen]\nhttp = 1 1\nworkers = -1\n[room]\nstatus = 404\nmax_wait = \"x\n[log]\nlevel = \"inof\"\n";
    let lines: Vec<_> = Settings::parse(text, "f").unwrap_err().iter().map(|m| m.line).collect();
    for wanted in [2, 3, 5, 6, 8] {
        assert!(lines.contains(&wanted), "{lines:?}");
    }
    assert!(lines.is_sorted());
    let many: String = (0..500).map(|i| format!("k{i} = 1\n")).collect();
    let all = Settings::parse(&many, "f").unwrap_err();
    assert_eq!(all.len(), 100);
    assert!(all[99].to_string().contains("(There are 400 more mistakes.)"), "{}", all[99]);
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let dir = std::env::temp_dir().join(format!("tidegate-settings-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let text_of = |path: &std::path::Path| Settings::load(path).unwrap_err()[0].to_string();
    assert!(text_of(&dir.join("none.toml")).contains("expected a readable file; got"));
    std::fs::write(dir.join("latin.toml"), b"[log]\nlevel = \"\xe9\"").unwrap();
    assert!(text_of(&dir.join("latin.toml")).contains("expected UTF-8; got a byte that is not, in line 2"));
    std::fs::write(dir.join("big.toml"), vec![b'\n'; 1_048_577]).unwrap();
    assert!(text_of(&dir.join("big.toml")).contains("expected a file of at most 1048576 bytes"));
    std::fs::write(dir.join("good.toml"), ORIGIN).unwrap();
    assert_eq!(Settings::load(&dir.join("good.toml")).unwrap().origin.replicas, ["app:80"]);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Large files in shapes that a quadratic algorithm would take for ever to read.
#[test]
fn large_files_are_refused_in_finite_time() {
    let fill = |piece: &str| piece.repeat(1_000_000 / piece.len());
    let numbered = |f: fn(usize) -> String| (0..40_000).map(f).collect::<String>();
    for text in [
        fill("["),
        fill("a."),
        fill("[[class]]\n"),
        fill("\"\n"),
        fill("= \n"),
        numbered(|i| format!("max_wai{i} = {i}\n")),
        numbered(|i| format!("[[class]]\nname = \"c{i}\"\n")),
        format!("room.classes = [{}]", numbered(|i| format!("\"class-{i}\","))),
        format!("origin.replicas = [{}]", numbered(|i| format!("\"a:{i}\","))),
        format!("[[class]]\nname = \"a\"\nmatch.header = {{ {} }}", numbered(|i| format!("\"x {i}\" = 1,"))),
    ] {
        assert!(Settings::parse(&text, "f").is_err());
    }
}

#[test]
fn mistakes_in_a_part_of_a_document_have_its_positions() {
    let text = "other = 1\n[gate]\nroom.max_wiat = 5\n[gate.listen]\nadmin_token = \"short\"\n";
    let (root, syntax) = tree::parse(0, text);
    assert!(syntax.is_empty());
    let Some(tree::Value::Table(gate)) = root.get("gate").map(|entry| &entry.node.value) else { panic!() };
    let part = Settings::read_part(gate, "gate");
    let sources = [tree::Source { name: "flash.toml".into(), text: text.into() }];
    let said: Vec<String> =
        place(part.found, &sources, &part.secrets).iter().map(ToString::to_string).collect();
    assert!(said[0].starts_with("flash.toml:3:6: gate.room.max_wiat: expected a key of [room]"), "{said:?}");
    assert!(
        said[1].starts_with("flash.toml:5:15: gate.listen.admin_token: expected at least 16"),
        "{said:?}"
    );
    assert!(!said[1].contains("short"), "{said:?}");
    assert_eq!(said.len(), 2);
    // Keys that must agree are checked too.
    let part = Settings::read_part(&tree::Table::default(), "gate");
    assert_eq!(
        part.found.iter().map(|found| found.key.as_str()).collect::<Vec<_>>(),
        ["gate.origin.replicas"]
    );
}
