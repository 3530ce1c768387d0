//! What policing is asked for, and what it tells: of XDP and of nftables.

/// Which mechanism is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mechanism {
    /// XDP; nftables where XDP does not work.
    #[default]
    Auto,
    Xdp,
    Nftables,
}

/// Where XDP runs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum XdpMode {
    /// In the driver if it can, else in the stack.
    #[default]
    Auto,
    /// In the driver, before a socket buffer is allocated.
    Native,
    /// At the entry of the stack: on every interface, at some cost.
    Generic,
}

/// What to attach, and to what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicerConfig {
    /// Names of network interfaces.
    pub interfaces: Vec<String>,
    pub mechanism: Mechanism,
    pub xdp_mode: XdpMode,
    /// Rules that there is room for, up to [`PolicerConfig::MOST_RULES`]. Their memory is taken at the
    /// start: per rule 100 bytes, and 80 for each CPU.
    pub max_rules: usize,
}

impl PolicerConfig {
    pub const MOST_RULES: usize = 65_536;
}

impl Default for PolicerConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            mechanism: Mechanism::Auto,
            xdp_mode: XdpMode::Auto,
            max_rules: 16_384,
        }
    }
}

/// What polices an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    XdpNative,
    XdpGeneric,
    Nftables,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
            Self::Nftables => "nftables",
        }
    }
}

/// An interface that is policed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttachedTo {
    pub interface: String,
    pub mode: Mode,
}

/// What a rule has done since it was set for the first time: `seen = passed + dropped + reset + slowed`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RuleCounters {
    pub name: String,
    pub seen: u64,
    pub passed: u64,
    pub dropped: u64,
    pub reset: u64,
    /// Passed beyond the rate, with the lowest priority.
    pub slowed: u64,
}

/// What was seen of SYNs in all, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    pub syns: u64,
    /// SYNs that no rule is about; they pass.
    pub unmatched: u64,
}
