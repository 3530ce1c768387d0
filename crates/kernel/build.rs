//! Compiles the programs of `bpf/` with clang, if it is there.
//!
//! The object is built twice: with and without jumbo frames in several buffers, which Linux has from 5.18
//! on. Without clang the crate builds without the programs, and says at run time what to install
//! (`crate::is_built`).

use std::path::Path;
use std::process::Command;

const FLAGS: [&str; 8] = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tidegate_bpf)");
    println!("cargo::rerun-if-env-changed=CLANG");
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    for entry in std::fs::read_dir(&bpf).expect("the directory bpf/").flatten() {
        println!("cargo::rerun-if-changed={}", entry.path().display());
    }
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return;
    }
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    for (object, define) in [("tidegate.o", "-UFRAGS"), ("tidegate_frags.o", "-DFRAGS")] {
        let mut compile = Command::new(&clang);
        compile.args(FLAGS).arg(define).arg("-c").arg(bpf.join("tidegate.bpf.c"));
        match compile.arg("-o").arg(Path::new(&out).join(object)).status() {
            Ok(status) if status.success() => {}
            // A program that does not compile is a fault of this repository, not of the machine.
            Ok(status) => panic!("{clang} did not compile bpf/tidegate.bpf.c: {status}"),
            Err(error) => {
                println!(
                    "cargo::warning=no XDP and no prioritised accept: {clang} does not run ({error}). \
                     Install it (Debian: apt-get install clang) and build again"
                );
                return;
            }
        }
    }
    println!("cargo::rustc-cfg=tidegate_bpf");
}
