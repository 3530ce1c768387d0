//! SYN policing by XDP.

use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp, XdpMode as AyaMode};
use tidegate_core::policing::SynRule;

use crate::error::{KernelError, with_causes};
use crate::link;
use crate::policing::SynPolicing;
use crate::program::{Loaded, Part, Programs, Shared};
use crate::types::{AttachedTo, Mode, PolicerConfig, RuleCounters, Totals, XdpMode};

/// The program of `bpf/syn_police.bpf.c` on some interfaces.
pub struct Policer {
    programs: Programs,
    /// Closing them detaches the program: when this is dropped, and when the process ends in whatever way.
    _links: Vec<FdLink>,
    attached: Vec<AttachedTo>,
}

impl Policer {
    /// Attaches the program to all of the interfaces, without rules at first: every SYN passes. An
    /// interface with another XDP program is left alone, and then none is attached to.
    pub fn attach(config: &PolicerConfig) -> Result<Self, KernelError> {
        let indices: Vec<u32> =
            config.interfaces.iter().map(|name| link::index_of(name)).collect::<Result<_, _>>()?;
        let loaded = Loaded::new(config.max_rules, Part::Policing)?;
        let mut links = Vec::new();
        let mut attached = Vec::new();
        for (interface, index) in config.interfaces.iter().zip(indices) {
            let (link, mode) = attach_to(&loaded, interface, index, config.xdp_mode)?;
            links.push(link);
            attached.push(AttachedTo { interface: interface.clone(), mode });
        }
        Ok(Self { programs: Programs { shared: loaded }, _links: links, attached })
    }
}

impl SynPolicing for Policer {
    fn set_rules(&mut self, rules: &[SynRule]) -> Result<(), KernelError> {
        self.programs.shared.lock().set_rules(rules)
    }

    fn counters(&mut self) -> Result<Vec<RuleCounters>, KernelError> {
        self.programs.shared.lock().counters()
    }

    fn totals(&mut self) -> Result<Totals, KernelError> {
        self.programs.shared.lock().totals()
    }

    fn attached(&self) -> &[AttachedTo] {
        &self.attached
    }

    fn notes(&self) -> &[String] {
        &[]
    }

    fn programs(&self) -> Option<&Programs> {
        Some(&self.programs)
    }
}

fn attach_to(
    loaded: &Shared,
    interface: &str,
    index: u32,
    mode: XdpMode,
) -> Result<(FdLink, Mode), KernelError> {
    let modes = match mode {
        XdpMode::Auto => &[(AyaMode::Driver, Mode::XdpNative), (AyaMode::Skb, Mode::XdpGeneric)][..],
        XdpMode::Native => &[(AyaMode::Driver, Mode::XdpNative)],
        XdpMode::Generic => &[(AyaMode::Skb, Mode::XdpGeneric)],
    };
    // Asked first, so that the answer is clear; the kernel refuses a second program too.
    other_program(interface, index)?;
    let mut why = String::new();
    for (flags, mode) in modes {
        match link_to(loaded, index, *flags) {
            Ok(link) => return Ok((link, *mode)),
            Err(error) => {
                other_program(interface, index)?;
                let name = mode.name();
                why =
                    format!("{why}{}{name}: {}", if why.is_empty() { "" } else { "; " }, with_causes(&error));
            }
        }
    }
    Err(KernelError::Attach { interface: interface.into(), why })
}

fn other_program(interface: &str, index: u32) -> Result<(), KernelError> {
    match link::describe(index).map(|link| link.xdp_program) {
        Ok(Some(id)) => Err(KernelError::OtherProgram { interface: interface.into(), id }),
        Ok(None) => Ok(()),
        Err(source) => Err(KernelError::Io { what: "asking for the interface's XDP program", source }),
    }
}

/// Attaches by a link, and by nothing else: where the kernel refuses a link, `aya` attaches for good by
/// netlink, which would outlive a killed process.
fn link_to(loaded: &Shared, index: u32, mode: AyaMode) -> Result<FdLink, ProgramError> {
    let mut loaded = loaded.lock();
    let program = loaded.ebpf.program_mut("syn_police").expect("it is loaded");
    let program: &mut Xdp = program.try_into()?;
    let id = program.attach_to_if_index(index, mode)?;
    // Dropping what is no link detaches it.
    FdLink::try_from(program.take_link(id)?).map_err(|_| ProgramError::InvalidName { name: "no link".into() })
}
