//! What works on this machine, and why something does not: for `tidegate doctor`.
//!
//! Nothing is attached and nothing is changed: the programs are loaded into the kernel and unloaded again.

use std::fmt;
use std::process::Command;

use crate::link;
use crate::program::{Loaded, Part, is_built};

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    Works,
    /// It does not; the text says why, and what to do.
    Fails(String),
}

impl Finding {
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Fails(why) => write!(f, "does not work: {why}"),
        }
    }
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceReport {
    pub name: String,
    /// The driver, or the kind of a virtual interface.
    pub driver: Option<String>,
    pub is_up: bool,
    /// The id of the XDP program that is there already.
    pub xdp_program: Option<u32>,
}

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// As `uname -r` prints it.
    pub kernel: String,
    /// Whether the kernel describes its types (BTF). The programs do not need it; it makes the kernel's
    /// messages clear.
    pub has_btf: bool,
    /// Whether this build has the programs: [`is_built`].
    pub is_built: bool,
    /// Those of CAP_NET_ADMIN, CAP_BPF and CAP_SYS_ADMIN that this process has.
    pub capabilities: Vec<&'static str>,
    /// Policing by XDP: the verifier accepts the program.
    pub xdp: Finding,
    /// Prioritised accept: the verifier accepts the program.
    pub priorities: Finding,
    /// Policing by nftables: a table with an owner can be made.
    pub nftables: Finding,
    pub interfaces: Vec<InterfaceReport>,
}

/// Oldest kernel for XDP: atomic compare-and-swap and functions that are checked by themselves.
const OLDEST: (u32, u32) = (5, 12);
/// Oldest kernel for priorities: a socket's cookie in the choice of a listener.
const OLDEST_FOR_PRIORITIES: (u32, u32) = (5, 14);

const CAPABILITIES: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_ADMIN", 21), ("CAP_BPF", 39)];

/// Tries what can be tried, and describes the rest.
pub fn probe() -> Report {
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    Report {
        xdp: programs(&kernel, OLDEST, Part::Policing),
        priorities: programs(&kernel, OLDEST_FOR_PRIORITIES, Part::Priorities),
        nftables: nftables(),
        has_btf: std::path::Path::new("/sys/kernel/btf/vmlinux").exists(),
        is_built: is_built(),
        capabilities: capabilities(),
        interfaces: interfaces(),
        kernel,
    }
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn programs(kernel: &str, oldest: (u32, u32), part: Part) -> Finding {
    match Loaded::new(1, part) {
        Ok(_) => Finding::Works,
        Err(error) => match version(kernel) {
            Some(version) if version < oldest => Finding::Fails(format!(
                "it needs Linux {}.{} or newer, this is {kernel} ({error})",
                oldest.0, oldest.1
            )),
            _ => Finding::Fails(error.to_string()),
        },
    }
}

fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut numbers = kernel.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Lets nft check a table with an owner, without making it.
fn nftables() -> Finding {
    let table = format!("table netdev tidegate_probe_{} {{ flags owner; }}", std::process::id());
    let output = Command::new("nft").args(["--check", "add", &table]).output();
    match output {
        Err(error) => Finding::Fails(crate::KernelError::NoNft(error).to_string()),
        Ok(output) if output.status.success() => Finding::Works,
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Finding::Fails(message.lines().next().unwrap_or("nft fails").trim().to_owned())
        }
    }
}

fn capabilities() -> Vec<&'static str> {
    let status = read("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    CAPABILITIES.iter().filter(|(_, bit)| set & (1 << bit) != 0).map(|(name, _)| *name).collect()
}

fn interfaces() -> Vec<InterfaceReport> {
    let report = |(name, index): (String, u32)| {
        let link = link::describe(index).unwrap_or_default();
        // Files are of the namespace that mounted them, which is another one where this is not the same
        // interface.
        let directory = format!("/sys/class/net/{name}");
        let is_same = read(&format!("{directory}/ifindex")) == Some(index.to_string());
        let driver = std::fs::read_link(format!("{directory}/device/driver")).ok().filter(|_| is_same);
        let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        InterfaceReport {
            name,
            driver: driver.or(link.kind),
            is_up: link.is_up,
            xdp_program: link.xdp_program,
        }
    };
    link::interfaces().into_iter().map(report).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |is: bool| if is { "yes" } else { "no" };
        writeln!(f, "kernel                 Linux {}", self.kernel)?;
        writeln!(f, "types of the kernel    {} (BTF)", yes(self.has_btf))?;
        let capabilities =
            if self.capabilities.is_empty() { "none".into() } else { self.capabilities.join(", ") };
        writeln!(f, "capabilities           {capabilities}")?;
        let built =
            if self.is_built { "yes" } else { "no: install clang (apt-get install clang) and build again" };
        writeln!(f, "kernel programs built  {built}")?;
        writeln!(f, "SYN policing by XDP    {}", self.xdp)?;
        writeln!(f, "  by nftables          {}", self.nftables)?;
        writeln!(f, "prioritised accept     {}", self.priorities)?;
        for interface in &self.interfaces {
            let driver = interface.driver.as_deref().unwrap_or("no driver of its own");
            let state = if interface.is_up { "up" } else { "down" };
            write!(f, "interface {:<12} {state}, {driver}", interface.name)?;
            match interface.xdp_program {
                Some(id) => writeln!(f, ", has another XDP program (id {id}), which is left alone")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert!(version("5.4") < Some(OLDEST));
        assert_eq!(version("strange"), None);
    }

    #[test]
    fn a_report_answers_everything() {
        let report = probe();
        assert!(report.interfaces.iter().any(|interface| interface.name == "lo" && interface.is_up));
        assert_eq!(report.is_built, is_built());
        let text = report.to_string();
        for part in ["kernel ", "capabilities", "XDP", "nftables", "prioritised accept", "interface lo"] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
    }
}
