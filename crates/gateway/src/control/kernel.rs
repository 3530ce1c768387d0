//! The kernel's part: rules for SYNs are attached at the start, and listening sockets are ordered by
//! priority (docs/kernel.md). Where the kernel cannot, the gate runs without and says so once.
//!
//! ```text
//! file, tunables ─► rules of the file ─┐
//! PUT, DELETE ────► rules of the API ──┼─(thread "kernel")─► KernelControl ─► XDP or nftables, sk_reuseport
//! agent ──────────► rates and bursts ──┘          └─► state ─► /v1/kernel, /metrics, history
//! ```
//!
//! [`KernelControl`] is what hangs in the kernel, [`syn_rules::SynRules`] the rules and the thread. All calls
//! to the kernel may block for some tenths of a second: nothing of [`KernelControl`] is called on a worker or
//! on the control thread.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use parking_lot::Mutex;
use tidegate_core::policing::SynRule;
use tidegate_kernel::{
    AttachedTo, KernelError, Mechanism, PolicerConfig, Priorities, PriorityConfig, RuleCounters, SynPolicing,
    Totals, XdpMode, attach, interfaces_of,
};
use tidegate_settings::{Policing, Settings};

pub mod adapt;
pub mod book;
pub mod state;
pub mod syn_rules;

/// What is attached to the kernel. It ends when this is dropped, and with the process.
///
/// `policing` is locked before `priorities`.
pub struct KernelControl {
    /// `None`: `kernel.policing` is "off".
    wanted: Option<PolicerConfig>,
    max_rules: usize,
    /// Priorities in which connections are accepted, at least 1.
    count: usize,
    /// Also without rules: those that come later then share those of XDP with the priorities.
    is_always_attached: bool,
    policing: Mutex<Policed>,
    priorities: Mutex<Option<Priorities>>,
}

#[derive(Default)]
struct Policed {
    by: Option<Box<dyn SynPolicing>>,
    /// Those that were set last.
    rules: Vec<SynRule>,
    /// Whether the kernel orders the connections to an address at least.
    is_ordered: bool,
    /// What does not work and why, by what it is about.
    trouble: BTreeMap<Part, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Policing,
    Rules,
    Order,
}

/// What the kernel says of policing.
#[derive(Clone, Default, Debug)]
pub struct Counted {
    pub attached: Vec<AttachedTo>,
    pub notes: Vec<String>,
    pub trouble: Option<String>,
    pub is_ordered: bool,
    /// Of all SYNs, and of the rules in force. `None`: they could not be read.
    pub figures: Option<(Totals, Vec<RuleCounters>)>,
}

impl KernelControl {
    /// Attaches policing with the rules of the file, before anything listens. `addresses` are those that
    /// the gate will listen at.
    pub fn start(settings: &Settings, addresses: &[SocketAddr]) -> Self {
        let count = settings.priorities();
        let this = Self {
            wanted: policer_config(settings, addresses),
            max_rules: settings.kernel.max_rules,
            count,
            is_always_attached: settings.kernel.adapt || count > 1,
            policing: Mutex::default(),
            priorities: Mutex::default(),
        };
        let rules = settings.syn_rules();
        if !rules.is_empty() || this.is_always_attached {
            this.follow(&rules);
        }
        this
    }

    /// Orders the connections to one address: `listeners[priority]` has a socket for each worker. Without
    /// the kernel's help the sockets share connections by hash, and order means nothing.
    pub fn prioritise(&self, listeners: &[Vec<RawFd>]) {
        let mut policing = self.policing.lock();
        let mut priorities = self.priorities.lock();
        let config = PriorityConfig { max_rules: self.max_rules, ..PriorityConfig::default() };
        let attached = (|| {
            if priorities.is_none() {
                *priorities = Some(Priorities::new(policing.by.as_deref(), &config)?);
            }
            let priorities = priorities.as_mut().expect("made above");
            priorities.attach(listeners, &config)?;
            priorities.set_rules(&policing.rules)
        })();
        match attached {
            Ok(()) => policing.is_ordered = true,
            Err(error) => {
                let trouble = format!("connections are accepted in the order in which they come: {error}");
                policing.tell(Part::Order, trouble);
            }
        }
    }

    /// Priorities in which connections are accepted, at least 1.
    pub fn priorities(&self) -> usize {
        self.count
    }

    /// Rules that there is room for.
    pub fn max_rules(&self) -> usize {
        self.max_rules
    }

    /// Why rules have no effect, where they have none.
    pub fn why_not(&self) -> Option<String> {
        let policing = self.policing.lock();
        if policing.by.is_some() || policing.is_ordered {
            return None;
        }
        match &self.wanted {
            Some(_) => policing.trouble(),
            None => Some("kernel.policing is \"off\", and there is no order of priorities".into()),
        }
    }

    /// Replaces all rules at once, and attaches policing before if it is wanted and not there yet. A kernel
    /// that cannot police is no error: that is said once, and kept for [`Counted::trouble`].
    ///
    /// # Errors
    /// The rules are refused. The old ones are in force then.
    pub fn set_rules(&self, rules: &[SynRule]) -> Result<(), KernelError> {
        let mut policing = self.policing.lock();
        if policing.by.is_none()
            && (!rules.is_empty() || self.is_always_attached)
            && let Some(wanted) = &self.wanted
        {
            match attach_to(wanted) {
                Ok(by) => policing.begin(by),
                Err(error) => {
                    let trouble = format!("SYNs are not policed, and the gate runs without: {error}");
                    policing.tell(Part::Policing, trouble);
                }
            }
        }
        if let Some(by) = &mut policing.by {
            by.set_rules(rules)?;
        }
        if let Some(priorities) = self.priorities.lock().as_mut() {
            priorities.set_rules(rules)?;
        }
        policing.rules = rules.to_vec();
        policing.trouble.remove(&Part::Rules);
        Ok(())
    }

    /// As [`KernelControl::set_rules`], for rules that nobody waits for: that they are refused is said once,
    /// and kept for [`Counted::trouble`]. Whether they are in force, as far as the kernel polices at all.
    pub fn follow(&self, rules: &[SynRule]) -> bool {
        match self.set_rules(rules) {
            Ok(()) => true,
            Err(error) => {
                let trouble =
                    format!("the rules for SYNs are refused, and those before are in force: {error}");
                self.policing.lock().tell(Part::Rules, trouble);
                false
            }
        }
    }

    /// Counters and the rest of what an operator should know.
    pub(crate) fn read(&self) -> Counted {
        let mut policing = self.policing.lock();
        let (is_ordered, trouble) = (policing.is_ordered, policing.trouble());
        let Some(by) = &mut policing.by else {
            return Counted { trouble, is_ordered, figures: Some(Default::default()), ..Counted::default() };
        };
        let figures = by.totals().and_then(|totals| Ok((totals, by.counters()?)));
        let figures = figures.inspect_err(|error| tracing::debug!(%error, "counters of SYNs cannot be read"));
        let (attached, notes) = (by.attached().to_vec(), by.notes().to_vec());
        Counted { attached, notes, trouble, is_ordered, figures: figures.ok() }
    }
}

impl Policed {
    fn begin(&mut self, by: Box<dyn SynPolicing>) {
        for AttachedTo { interface, mode } in by.attached() {
            tracing::info!(interface, mode = mode.name(), "SYNs are policed");
        }
        for note in by.notes() {
            tracing::warn!("{note}");
        }
        self.by = Some(by);
        self.trouble.remove(&Part::Policing);
    }

    /// Says it, unless that was said last.
    fn tell(&mut self, part: Part, trouble: String) {
        if self.trouble.get(&part) != Some(&trouble) {
            tracing::warn!("{trouble}");
            self.trouble.insert(part, trouble);
        }
    }

    fn trouble(&self) -> Option<String> {
        let lines: Vec<&str> = self.trouble.values().map(String::as_str).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

fn attach_to(wanted: &PolicerConfig) -> Result<Box<dyn SynPolicing>, String> {
    if wanted.interfaces.is_empty() {
        return Err("no network interface has an address that the gate listens at (kernel.interfaces)".into());
    }
    attach(wanted).map_err(|error| error.to_string())
}

fn policer_config(settings: &Settings, addresses: &[SocketAddr]) -> Option<PolicerConfig> {
    let kernel = &settings.kernel;
    let mechanism = match kernel.policing {
        Policing::Auto => Mechanism::Auto,
        Policing::Xdp => Mechanism::Xdp,
        Policing::Nftables => Mechanism::Nftables,
        Policing::Off => return None,
    };
    let xdp_mode = match kernel.xdp_mode {
        tidegate_settings::XdpMode::Auto => XdpMode::Auto,
        tidegate_settings::XdpMode::Native => XdpMode::Native,
        tidegate_settings::XdpMode::Generic => XdpMode::Generic,
    };
    let interfaces = match kernel.interfaces.is_empty() {
        true => interfaces_of(addresses),
        false => kernel.interfaces.clone(),
    };
    Some(PolicerConfig { interfaces, mechanism, xdp_mode, max_rules: kernel.max_rules })
}
