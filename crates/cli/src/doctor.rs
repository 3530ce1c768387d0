//! `tidegate doctor`: what of the gate works on this machine, what does not, why, and what to do.
//!
//! Nothing is changed: kernel programs are loaded and unloaded again, addresses are bound and given back.
//! Whether XDP runs in a driver is told by the driver's name. To try it would attach a program to an
//! interface in use, for which some drivers take their link down.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use serde_json::{Value, json};
use tidegate_core::policing::Excess;
use tidegate_gateway::base::state_dir::StateDir;
use tidegate_kernel::{Finding, InterfaceReport, Report, interfaces_of, probe};
use tidegate_settings::{Policing, Settings, XdpMode};

use crate::results::{fail, say};

/// `tidegate doctor`
#[derive(ClapArgs, Debug)]
pub struct DoctorOptions {
    /// Configuration file: says what of it works here. Without one, only the machine is looked at.
    pub file: Option<PathBuf>,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Drivers that run XDP by themselves (Linux 6.18, `ndo_bpf`), among those that servers have.
const NATIVE_DRIVERS: [&str; 30] = [
    "atlantic",
    "bnxt_en",
    "bond",
    "ena",
    "fsl_dpaa2_eth",
    "fsl_enetc",
    "gve",
    "hv_netvsc",
    "i40e",
    "ice",
    "igb",
    "igc",
    "ixgbe",
    "ixgbevf",
    "mana",
    "mlx4_en",
    "mlx5_core",
    "mvneta",
    "mvpp2",
    "netsec",
    "nfp",
    "nicvf",
    "qede",
    "sfc",
    "st_gmac",
    "tun",
    "veth",
    "virtio_net",
    "vmxnet3",
    "xen_netfront",
];

const RIGHTS: &str =
    "run as root, or give the process CAP_BPF and CAP_NET_ADMIN (systemd: AmbientCapabilities)";

/// Whether something works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Works,
    /// It works, with less than what could be.
    Limited,
    Fails,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Limited => "limited",
            Self::Fails => "fails",
        }
    }
}

/// An answer about one thing.
#[derive(PartialEq, Debug)]
struct Answer {
    about: String,
    verdict: Verdict,
    /// What was found, or why it does not work.
    found: String,
    advice: Option<String>,
}

/// One that works, if nothing else is said.
fn answer(about: impl Into<String>, found: impl Into<String>) -> Answer {
    Answer { about: about.into(), verdict: Verdict::Works, found: found.into(), advice: None }
}

impl Answer {
    fn limited(self, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Limited, advice: Some(advice.into()), ..self }
    }

    fn fails(self, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Fails, advice: Some(advice.into()), ..self }
    }
}

pub fn doctor(options: &DoctorOptions) -> ExitCode {
    let settings = match options.file.as_deref().map(Settings::load).transpose() {
        Ok(settings) => settings,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}\n"));
            return ExitCode::from(2);
        }
    };
    let report = probe();
    let mut machine = machine(&report);
    let configured = match &settings {
        Some(settings) => configured(settings, &report),
        None => {
            machine.extend(host(&Settings::default()));
            Vec::new()
        }
    };
    let failures = configured.iter().filter(|answer| answer.verdict == Verdict::Fails).count();
    let said = if options.json {
        let document = document(&report, &machine, settings.is_some().then_some(&configured));
        say(format_args!("{document:#}\n"))
    } else {
        let name = options.file.as_ref().map(|file| file.display().to_string());
        say(text(&machine, name.as_deref(), &configured, failures))
    };
    match said {
        Err(e) => fail(e),
        Ok(()) if failures > 0 => ExitCode::FAILURE,
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// What the kernel can do, and what the build has.
fn machine(report: &Report) -> Vec<Answer> {
    let kernel = answer("kernel", format!("Linux {}", report.kernel));
    let types = match report.has_btf {
        true => answer("types of the kernel", "described (BTF)"),
        false => answer("types of the kernel", "not described (no BTF)")
            .limited("nothing needs them; messages of the verifier are clearer with them"),
    };
    let rights = match report.capabilities.as_slice() {
        [] => answer("capabilities", "none for the kernel's part").limited(RIGHTS),
        all => answer("capabilities", all.join(", ")),
    };
    let built = match report.is_built {
        true => answer("kernel programs", "compiled into this build"),
        false => answer("kernel programs", "not compiled: clang was not there when this was built")
            .limited("install clang (Debian: apt-get install clang) and build again"),
    };
    let mut all = vec![
        kernel,
        types,
        rights,
        built,
        mechanism("policing by XDP", &report.xdp, report),
        mechanism("policing by nftables", &report.nftables, report),
        mechanism("prioritised accept", &report.priorities, report),
    ];
    all.extend(report.interfaces.iter().map(interface));
    all
}

fn mechanism(about: &str, finding: &Finding, report: &Report) -> Answer {
    match finding {
        Finding::Works => answer(about, "tried, and it works"),
        Finding::Fails(why) => answer(about, why.clone()).fails(advice(report)),
    }
}

/// What to do so that a mechanism works.
fn advice(report: &Report) -> String {
    match () {
        () if !report.capabilities.contains(&"CAP_NET_ADMIN") => RIGHTS.into(),
        () if !report.is_built => {
            "install clang (Debian: apt-get install clang) and build again, or use nftables".into()
        }
        () => "without it the gate runs as it does without a [kernel] section (docs/kernel.md)".into(),
    }
}

fn interface(report: &InterfaceReport) -> Answer {
    let InterfaceReport { name, driver, is_up, xdp_program } = report;
    let driver_name = driver.as_deref().unwrap_or("no driver of its own");
    let mode = if has_native(report) {
        "in the driver (xdp-native) if it agrees"
    } else {
        "in the stack (xdp-generic)"
    };
    let state = if *is_up { "up" } else { "down" };
    let about = format!("interface {name}");
    match xdp_program {
        None => answer(about, format!("{state}, {driver_name}: XDP {mode}")),
        Some(id) => answer(about, format!("{state}, {driver_name}, has another XDP program (id {id})"))
            .limited("it is left alone: policing is by nftables there, or after that program is detached"),
    }
}

fn has_native(interface: &InterfaceReport) -> bool {
    interface.driver.as_deref().is_some_and(|driver| NATIVE_DRIVERS.contains(&driver))
}

/// What the gate needs of the host, whatever the kernel does with SYNs.
fn host(settings: &Settings) -> Vec<Answer> {
    vec![cores(settings), open_files(settings), accept_queue(settings), state_directory(settings)]
}

fn cores(settings: &Settings) -> Answer {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = if settings.listen.workers == 0 { cores } else { settings.listen.workers };
    let answer = answer("listen.workers", format!("{workers} workers on {cores} cores"));
    if workers > cores {
        answer.limited(format!("more workers than cores take turns: expected at most {cores}, or 0"))
    } else {
        answer
    }
}

fn open_files(settings: &Settings) -> Answer {
    let needed = settings.limits.max_connections as u64;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let Some(most) = hard_limit(&limits) else {
        return answer("limits.max_connections", "the limit of open files is not known (/proc is missing)")
            .limited("each connection is an open file");
    };
    let found = format!("{needed} connections, {most} open files (hard limit)");
    if most >= needed {
        return answer("limits.max_connections", found);
    }
    answer("limits.max_connections", found).limited(format!(
        "connections beyond that are refused: raise the limit (systemd: LimitNOFILE={}), or lower \
         limits.max_connections",
        needed.saturating_mul(2)
    ))
}

/// Of open files, to which the gate raises its own limit at the start.
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn accept_queue(settings: &Settings) -> Answer {
    let wanted = u64::from(settings.listen.backlog);
    let most = fs::read_to_string("/proc/sys/net/core/somaxconn").ok();
    match most.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(most) if most < wanted => answer(
            "listen.backlog",
            format!("{wanted} connections may wait for a worker, the kernel lets {most}"),
        )
        .limited(format!("sysctl -w net.core.somaxconn={wanted}")),
        _ => answer("listen.backlog", format!("{wanted} connections may wait for a worker")),
    }
}

fn state_directory(settings: &Settings) -> Answer {
    let path = StateDir::path_for(settings.room.state_dir.as_deref(), settings.listen.http.port());
    let about = "room.state_dir";
    match writable_directory(&path) {
        Ok(()) => answer(about, format!("{} can be written", path.display())),
        Err(why) => answer(about, why).fails(
            "give the directory to the user that the gate runs as, or choose another (room.state_dir): the \
             gate does not start without",
        ),
    }
}

/// Tries to write into a directory, or into the one in which it would be made. Leaves nothing behind.
fn writable_directory(path: &Path) -> Result<(), String> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let trial = existing.join(format!(".tidegate-doctor-{}", std::process::id()));
    let made = fs::create_dir(&trial).and_then(|()| fs::remove_dir(&trial));
    made.map_err(|e| format!("{}: {e}", existing.display()))
}

/// What of a configuration works.
fn configured(settings: &Settings, report: &Report) -> Vec<Answer> {
    let mut all: Vec<Answer> = addresses(settings).iter().map(|(key, at)| address(key, *at)).collect();
    all.extend(host(settings));
    let rules = settings.syn_rules();
    if !rules.is_empty() {
        all.extend(policing(settings, report));
    }
    let priorities = settings.priorities();
    if priorities > 1 {
        let about = "kernel.priorities";
        all.push(match &report.priorities {
            Finding::Works => answer(about, format!("connections are accepted in {priorities} priorities")),
            Finding::Fails(why) => {
                answer(about, format!("connections are accepted as they come: {why}")).fails(advice(report))
            }
        });
    }
    if settings.kernel.adapt && rules.is_empty() {
        let answer = answer("kernel.adapt", "the agent has no rule to set");
        all.push(answer.limited("write [[syn_rule]] tables"));
    }
    all
}

fn addresses(settings: &Settings) -> Vec<(String, SocketAddr)> {
    let of = |tcp: &tidegate_settings::Tcp| (format!("tcp.{}.listen", tcp.name), tcp.listen);
    let mut all = vec![
        ("listen.http".to_owned(), settings.listen.http),
        ("listen.admin".to_owned(), settings.listen.admin),
    ];
    all.extend(settings.listen.https.map(|https| ("listen.https".to_owned(), https)));
    all.extend(settings.tcp.iter().map(of));
    all
}

fn address(key: &str, at: SocketAddr) -> Answer {
    let advice = match TcpListener::bind(at) {
        Ok(_) => return answer(key, format!("{at} is free")),
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            return answer(key, format!("{at} is in use"))
                .fails("another program listens there, perhaps this gate: see `ss -ltnp`");
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            "run as root, or give the process CAP_NET_BIND_SERVICE, or choose a port from 1024"
        }
        Err(e) if e.kind() == ErrorKind::AddrNotAvailable => {
            "no interface has this address: see `ip address`"
        }
        Err(_) => "choose another address",
    };
    answer(key, format!("{at} cannot be listened at")).fails(advice)
}

/// How the rules of a configuration are policed.
fn policing(settings: &Settings, report: &Report) -> Vec<Answer> {
    let kernel = &settings.kernel;
    if kernel.policing == Policing::Off {
        return vec![answer("kernel.policing", "off: rules give priorities only")];
    }
    let (interfaces, mut all) = policed(settings, report);
    let others: Vec<&str> =
        interfaces.iter().filter(|i| i.xdp_program.is_some()).map(|i| i.name.as_str()).collect();
    let (xdp, nft) = (&report.xdp, &report.nftables);
    let xdp_fails = match xdp {
        Finding::Fails(why) => Some(why.clone()),
        Finding::Works if !others.is_empty() => {
            Some(format!("there is another XDP program on {}", others.join(", ")))
        }
        Finding::Works => None,
    };
    let about = "kernel.policing";
    let modes = || {
        let modes: BTreeSet<&str> = interfaces.iter().map(|i| mode(i, kernel.xdp_mode)).collect();
        modes.into_iter().collect::<Vec<_>>().join(" and ")
    };
    let lesser = settings.syn_rule.iter().any(|rule| rule.excess == Excess::Slow);
    all.push(match (kernel.policing, xdp_fails, nft) {
        (Policing::Auto | Policing::Xdp, None, _) => {
            answer(about, format!("SYNs are policed by {}", modes()))
        }
        (Policing::Nftables, _, Finding::Works) if !lesser => answer(about, "SYNs are policed by nftables"),
        (Policing::Nftables, _, Finding::Works) => answer(about, "SYNs are policed by nftables")
            .limited("excess = \"slow\" drops there: nftables cannot change a connection's priority"),
        (Policing::Auto, Some(why), Finding::Works) => {
            answer(about, format!("SYNs are policed by nftables, not by XDP: {why}"))
                .limited("a SYN costs a comparison with each rule, and excess = \"slow\" drops")
        }
        (Policing::Xdp, Some(why), _) => {
            answer(about, format!("SYNs are not policed: {why}")).fails(advice(report))
        }
        (Policing::Auto, Some(why), Finding::Fails(nft)) => {
            answer(about, format!("SYNs are not policed, neither by XDP ({why}) nor by nftables ({nft})"))
                .fails(advice(report))
        }
        (Policing::Nftables, _, Finding::Fails(nft)) => {
            answer(about, format!("SYNs are not policed: {nft}")).fails(advice(report))
        }
        (Policing::Off, ..) => answer(about, "off"),
    });
    all
}

/// The interfaces that a configuration polices, and what is wrong with them.
fn policed<'r>(settings: &Settings, report: &'r Report) -> (Vec<&'r InterfaceReport>, Vec<Answer>) {
    let about = "kernel.interfaces";
    let wanted = if settings.kernel.interfaces.is_empty() {
        let listened: Vec<SocketAddr> = addresses(settings)
            .into_iter()
            .filter(|(key, _)| key != "listen.admin")
            .map(|(_, at)| at)
            .collect();
        interfaces_of(&listened)
    } else {
        settings.kernel.interfaces.clone()
    };
    let mut all = Vec::new();
    let mut found = Vec::new();
    for name in &wanted {
        match report.interfaces.iter().find(|interface| interface.name == *name) {
            Some(interface) => found.push(interface),
            None => all.push(
                answer(about, format!("there is no interface {name}"))
                    .fails("see `ip link`; a container has those of its own network namespace"),
            ),
        }
    }
    let names: Vec<&str> = found.iter().map(|interface| interface.name.as_str()).collect();
    match names.as_slice() {
        [] if all.is_empty() => all.push(
            answer(about, "no interface has an address that the gate listens at")
                .fails("name the interfaces in kernel.interfaces"),
        ),
        [] => {}
        names => all.push(answer(about, names.join(", "))),
    }
    let only_generic: Vec<&str> =
        found.iter().filter(|interface| !has_native(interface)).map(|i| i.name.as_str()).collect();
    if settings.kernel.xdp_mode == XdpMode::Native && !only_generic.is_empty() {
        let answer =
            answer("kernel.xdp_mode", format!("the driver of {} may not run XDP", only_generic.join(", ")));
        all.push(answer.limited("\"auto\" takes the stack where the driver cannot"));
    }
    (found, all)
}

fn mode(interface: &InterfaceReport, wanted: XdpMode) -> &'static str {
    match wanted {
        XdpMode::Native => "xdp-native",
        XdpMode::Auto if has_native(interface) => "xdp-native (xdp-generic if the driver refuses)",
        XdpMode::Auto | XdpMode::Generic => "xdp-generic",
    }
}

fn text(machine: &[Answer], file: Option<&str>, configured: &[Answer], failures: usize) -> String {
    let mut text = String::from("This machine\n");
    let width = machine.iter().chain(configured).map(|answer| answer.about.len()).max().unwrap_or(0);
    let write = |answers: &[Answer], text: &mut String| {
        for Answer { about, verdict, found, advice } in answers {
            let _ = writeln!(text, "  {:<8} {about:<width$}  {found}", verdict.name());
            if let Some(advice) = advice {
                let _ = writeln!(text, "  {:<8} {:<width$}  -> {advice}", "", "");
            }
        }
    };
    write(machine, &mut text);
    if let Some(file) = file {
        let _ = writeln!(text, "\n{file}");
        write(configured, &mut text);
        let _ = match failures {
            0 => writeln!(text, "\nAll that is configured works."),
            1 => writeln!(text, "\n1 thing that is configured will not work."),
            n => writeln!(text, "\n{n} things that are configured will not work."),
        };
    }
    text
}

fn document(report: &Report, machine: &[Answer], configured: Option<&Vec<Answer>>) -> Value {
    let one = |answer: &Answer| {
        json!({
            "about": answer.about,
            "verdict": answer.verdict.name(),
            "found": answer.found,
            "advice": answer.advice,
        })
    };
    let list = |answers: &[Answer]| answers.iter().map(one).collect::<Vec<_>>();
    let works = configured.map(|all| all.iter().all(|answer| answer.verdict != Verdict::Fails));
    json!({
        "kernel": report.kernel,
        "btf": report.has_btf,
        "built": report.is_built,
        "capabilities": report.capabilities,
        "xdp": report.xdp.works(),
        "nftables": report.nftables.works(),
        "priorities": report.priorities.works(),
        "machine": list(machine),
        "configured": configured.map(|all| list(all)),
        "works": works,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let interface = |name: &str, driver: &str| InterfaceReport {
            name: name.into(),
            driver: Some(driver.into()),
            is_up: true,
            xdp_program: None,
        };
        Report {
            kernel: "6.18.0".into(),
            has_btf: true,
            is_built: true,
            capabilities: vec!["CAP_NET_ADMIN", "CAP_BPF"],
            xdp: Finding::Works,
            priorities: Finding::Works,
            nftables: Finding::Works,
            interfaces: vec![interface("eth0", "virtio_net"), interface("eth1", "e1000e")],
        }
    }

    fn settings(policing: Policing, interfaces: &[&str], excess: Excess) -> Settings {
        let mut settings = Settings::default();
        settings.kernel.policing = policing;
        settings.kernel.interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        let rule =
            tidegate_settings::SynRule { name: "all".into(), rate: 10.0, excess, ..Default::default() };
        settings.syn_rule.push(rule);
        settings
    }

    fn verdict(settings: &Settings, report: &Report, about: &str) -> (Verdict, String) {
        let all = policing(settings, report);
        let answer = all.iter().find(|answer| answer.about == about).expect("an answer");
        (answer.verdict, answer.found.clone())
    }

    #[test]
    fn how_rules_are_policed() {
        let fails = Finding::Fails("it is too old".into());
        let no_xdp = || Report { xdp: fails.clone(), ..report() };
        let nothing = || Report { nftables: fails.clone(), ..no_xdp() };
        for (policing, excess, report, verdict_expected, found) in [
            (Policing::Auto, Excess::Drop, report(), Verdict::Works, "by xdp-generic and xdp-native"),
            (Policing::Xdp, Excess::Slow, report(), Verdict::Works, "by xdp-generic and xdp-native"),
            (Policing::Nftables, Excess::Drop, report(), Verdict::Works, "by nftables"),
            (Policing::Nftables, Excess::Slow, report(), Verdict::Limited, "by nftables"),
            (Policing::Auto, Excess::Drop, no_xdp(), Verdict::Limited, "not by XDP: it is too old"),
            (Policing::Xdp, Excess::Drop, no_xdp(), Verdict::Fails, "not policed: it is too old"),
            (Policing::Auto, Excess::Drop, nothing(), Verdict::Fails, "neither by XDP"),
            (Policing::Nftables, Excess::Drop, nothing(), Verdict::Fails, "not policed: it is too old"),
            (Policing::Off, Excess::Drop, nothing(), Verdict::Works, "priorities only"),
        ] {
            let settings = settings(policing, &["eth0", "eth1"], excess);
            let (verdict, text) = verdict(&settings, &report, "kernel.policing");
            assert!(verdict == verdict_expected && text.contains(found), "{policing:?}: {verdict:?}, {text}");
        }
    }

    #[test]
    fn interfaces_that_are_missing_taken_or_without_native_xdp() {
        let missing = settings(Policing::Auto, &["eth0", "eth7"], Excess::Drop);
        let (verdict_found, text) = verdict(&missing, &report(), "kernel.interfaces");
        assert!(verdict_found == Verdict::Fails && text.contains("eth7"), "{text}");
        let mut taken = report();
        taken.interfaces[0].xdp_program = Some(7);
        let (verdict_found, text) =
            verdict(&settings(Policing::Xdp, &["eth0"], Excess::Drop), &taken, "kernel.policing");
        assert!(verdict_found == Verdict::Fails && text.contains("another XDP program on eth0"), "{text}");
        let mut native = settings(Policing::Auto, &["eth1"], Excess::Drop);
        native.kernel.xdp_mode = XdpMode::Native;
        let (verdict_found, text) = verdict(&native, &report(), "kernel.xdp_mode");
        assert!(verdict_found == Verdict::Limited && text.contains("eth1"), "{text}");
    }

    #[test]
    fn the_hard_limit_of_open_files() {
        let limits =
            |hard: &str| format!("Max cpu time  1 2 s\nMax open files            1024   {hard}   files\n");
        assert_eq!(hard_limit(&limits("4096")), Some(4096));
        assert_eq!(hard_limit(&limits("unlimited")), Some(u64::MAX));
        assert_eq!(hard_limit("Max cpu time  1 2 s\n"), None);
        let mut settings = Settings::default();
        settings.limits.max_connections = usize::MAX;
        assert_eq!(open_files(&settings).verdict, Verdict::Limited);
        settings.limits.max_connections = 1;
        assert_eq!(open_files(&settings).verdict, Verdict::Works);
    }

    #[test]
    fn trying_a_directory_leaves_nothing_behind() {
        let base = std::env::temp_dir().join(format!("tidegate-doctor-test-{}", std::process::id()));
        fs::create_dir_all(&base).expect("a directory");
        assert_eq!(writable_directory(&base.join("not/yet/there")), Ok(()));
        assert_eq!(fs::read_dir(&base).expect("a directory").count(), 0);
        let file = base.join("file");
        fs::write(&file, "").expect("a file");
        assert!(writable_directory(&file.join("state")).is_err(), "below a file");
        fs::remove_dir_all(base).expect("ours");
    }
}
