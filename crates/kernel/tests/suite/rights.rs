//! Whether this machine can run what drives the kernel.

use std::io::Write as _;

/// Whether to run a test that loads programs and makes network namespaces. Otherwise it says loudly that it
/// does not: past the capture of what passing tests print.
pub fn can_run(is_built: bool) -> bool {
    // SAFETY: no arguments and no memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = set.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    // CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN, CAP_BPF.
    let has_all = [12, 13, 21, 39].into_iter().all(|bit| set & (1 << bit) != 0);
    let needs = match (is_root && has_all, is_built) {
        (true, true) => return true,
        (false, _) => "root with CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_SYS_ADMIN",
        (true, false) => "a build with the kernel programs: install clang and build again",
    };
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {test}: it needs {needs}\n").as_bytes());
    false
}
