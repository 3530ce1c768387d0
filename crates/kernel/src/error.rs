//! What can go wrong, in words for the operator.

use std::io;

use thiserror::Error;
use tidegate_core::policing::RuleError;

/// Why the kernel does not police or prioritise.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The programs were not compiled.
    #[error(
        "this build has no kernel programs: install clang (Debian: apt-get install clang) and build again"
    )]
    NotBuilt,
    #[error("{what} needs {needs}")]
    Permission { what: &'static str, needs: &'static str },
    #[error("no network interface is named {0:?}")]
    NoInterface(String),
    /// Somebody else's program is there, and is left alone.
    #[error("interface {interface} has another XDP program (id {id}) already, which is left alone")]
    OtherProgram { interface: String, id: u32 },
    #[error("XDP on interface {interface}: {why}")]
    Attach { interface: String, why: String },
    #[error("the kernel does not load the programs: {0}")]
    Load(String),
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error("{given} rules are more than the {most} that there is room for")]
    TooManyRules { given: usize, most: usize },
    /// Each shape costs every SYN a lookup.
    #[error(
        "the rules have {given} combinations of prefix lengths and ports, at most {most} are possible: \
         give prefixes fewer different lengths"
    )]
    TooManyShapes { given: usize, most: usize },
    #[error("map {map}: {why}")]
    Map { map: &'static str, why: String },
    #[error("listening sockets: {0}")]
    Listeners(String),
    #[error("nftables: {0}")]
    Nft(String),
    #[error("nftables cannot be used: the program nft does not run ({0}). Debian: apt-get install nftables")]
    NoNft(io::Error),
    #[error("neither XDP ({xdp}) nor nftables ({nft})")]
    Neither { xdp: String, nft: String },
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

impl KernelError {
    pub(crate) fn map(map: &'static str, why: impl ToString) -> Self {
        Self::Map { map, why: why.to_string() }
    }
}

/// The message of an error with those of its causes, each of which is in the one before where a library
/// writes it so.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}
