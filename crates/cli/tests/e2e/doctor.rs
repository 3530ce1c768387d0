//! `tidegate doctor`: on this machine as it is, without rights, and with configurations that will not work.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use super::harness::{TempDir, free_address, tidegate};

/// A configuration that polices the loopback interface.
fn config(dir: &Path, more: &str) -> PathBuf {
    let file = dir.join("gate.toml");
    let state = dir.join("state");
    let text = format!(
        "[listen]\nhttp = \"{}\"\nadmin = \"{}\"\n[origin]\nreplicas = [\"127.0.0.1:1\"]\n\
         [room]\nstate_dir = \"{}\"\n[limits]\nmax_connections = 100\n{more}",
        free_address(),
        free_address(),
        state.display()
    );
    fs::write(&file, text).expect("a file");
    file
}

const RULES: &str = "[[syn_rule]]\nname = \"all\"\nrate = 100.0\npriority = 1\n";

fn doctor(program: Command, file: Option<&Path>) -> (Output, Value) {
    let mut command = program;
    command.args(["doctor", "--json"]).args(file);
    let output = command.output().expect("tidegate doctor");
    let said = String::from_utf8_lossy(&output.stdout);
    let document = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said:?}, {output:?}"));
    (output, document)
}

/// The verdict about something, and the text of what was found and of what to do.
#[track_caller]
fn verdict(document: &Value, about: &str) -> (String, String) {
    let list = |key: &str| document[key].as_array().cloned().unwrap_or_default();
    let all = [list("machine"), list("configured")].concat();
    let answer = all.iter().find(|answer| answer["about"] == about);
    let answer = answer.unwrap_or_else(|| panic!("nothing about {about} in {document:#}"));
    let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
    (text("verdict"), format!("{} {}", text("found"), text("advice")))
}

#[test]
fn a_machine_without_a_configuration() {
    let (output, document) = doctor(tidegate(), None);
    assert!(output.status.success(), "{output:?}");
    assert!(document["works"].is_null() && document["configured"].is_null(), "{document:#}");
    for about in [
        "kernel",
        "types of the kernel",
        "capabilities",
        "kernel programs",
        "policing by XDP",
        "policing by nftables",
        "prioritised accept",
        "interface lo",
        "listen.workers",
        "limits.max_connections",
        "listen.backlog",
        "room.state_dir",
    ] {
        assert!(!verdict(&document, about).1.trim().is_empty(), "{about}");
    }
    let plain = tidegate().arg("doctor").output().expect("tidegate doctor");
    let text = String::from_utf8_lossy(&plain.stdout);
    assert!(text.starts_with("This machine\n") && text.contains("  interface lo "), "{text}");
}

/// As root all of it works. Who runs this without rights is told so, and what to do.
#[test]
fn a_configuration_works_as_far_as_the_kernel_does() {
    let dir = TempDir::new();
    let (output, document) = doctor(tidegate(), Some(&config(dir.path(), RULES)));
    let polices = document["xdp"] == true || document["nftables"] == true;
    let works = polices && document["priorities"] == true;
    assert_eq!(output.status.code(), Some(i32::from(!works)), "{document:#}");
    assert_eq!(document["works"], works);
    assert_eq!(verdict(&document, "kernel.interfaces"), ("works".into(), "lo ".into()));
    let (policing, text) = verdict(&document, "kernel.policing");
    assert_eq!(policing != "fails", polices, "{text}");
    assert!(document["xdp"] == false || text.contains("by xdp-generic"), "{text}");
    assert_eq!(verdict(&document, "listen.http").0, "works");
    assert_eq!(verdict(&document, "limits.max_connections").0, "works");
    assert!(!dir.path().join("state").exists(), "nothing is made");
}

#[test]
fn without_rights_it_says_what_is_missing() {
    let dir = TempDir::new();
    let file = config(dir.path(), RULES);
    let mut program = Command::new("setpriv");
    program.args(["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]);
    program.arg(env!("CARGO_BIN_EXE_tidegate"));
    let (output, document) = doctor(program, Some(&file));
    assert_eq!((output.status.code(), document["works"].as_bool()), (Some(1), Some(false)), "{document:#}");
    assert_eq!(document["capabilities"], serde_json::json!([]));
    for about in ["policing by XDP", "prioritised accept", "kernel.policing", "kernel.priorities"] {
        let (verdict, text) = verdict(&document, about);
        assert!(
            verdict == "fails" && text.contains("CAP_BPF and CAP_NET_ADMIN"),
            "{about}: {verdict}, {text}"
        );
    }
    // The gate itself runs: nothing else fails.
    let configured = document["configured"].as_array().expect("a list");
    let failures: Vec<&Value> = configured.iter().filter(|answer| answer["verdict"] == "fails").collect();
    assert_eq!(failures.len(), 2, "{failures:#?}");
}

#[test]
fn what_will_not_work_is_named() {
    let dir = TempDir::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let taken_at = taken.local_addr().expect("an address");
    let below_a_file = dir.path().join("gate.toml/state");
    let file = config(dir.path(), "");
    let text = fs::read_to_string(&file).expect("a file");
    let mut broken = String::new();
    for line in text.lines() {
        broken += &match line.split_once(" = ") {
            Some(("http", _)) => format!("http = \"{taken_at}\"\n"),
            Some(("state_dir", _)) => format!("state_dir = \"{}\"\n", below_a_file.display()),
            Some(("max_connections", _)) => "max_connections = 10000000\n".into(),
            _ => format!("{line}\n"),
        };
    }
    broken += &format!("[kernel]\ninterfaces = [\"tidegate-none\"]\n{RULES}");
    fs::write(&file, broken).expect("a file");
    let (output, document) = doctor(tidegate(), Some(&file));
    assert_eq!(output.status.code(), Some(1), "{document:#}");
    for (about, part) in [
        ("listen.http", "is in use"),
        ("room.state_dir", "gate.toml"),
        ("kernel.interfaces", "there is no interface tidegate-none"),
    ] {
        let (verdict, text) = verdict(&document, about);
        assert!(verdict == "fails" && text.contains(part), "{about}: {verdict}, {text}");
    }
    assert_eq!(verdict(&document, "listen.admin").0, "works");
    let plain = tidegate().arg("doctor").arg(&file).output().expect("tidegate doctor");
    let text = String::from_utf8_lossy(&plain.stdout);
    assert!(text.contains("that are configured will not work.") || text.contains("1 thing"), "{text}");
    assert_eq!(plain.status.code(), Some(1));
}

#[test]
fn a_configuration_with_mistakes_is_explained_as_check_does() {
    let dir = TempDir::new();
    let file = config(dir.path(), "[kernel]\npolicing = \"magic\"\n");
    let output = tidegate().arg("doctor").arg(&file).output().expect("tidegate doctor");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("kernel.policing") && said.contains("magic"), "{said}");
}
