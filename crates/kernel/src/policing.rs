//! What policing by XDP and by nftables have in common.

use tidegate_core::policing::SynRule;

use crate::error::KernelError;
use crate::program::Programs;
use crate::types::{AttachedTo, RuleCounters, Totals};

/// Policing of SYNs on some interfaces. It ends when this is dropped, and with the process.
pub trait SynPolicing: Send {
    /// Replaces all rules at once: each SYN meets the old rules or the new ones. A rule of the same name
    /// keeps its counters. After an error the old rules are in force.
    fn set_rules(&mut self, rules: &[SynRule]) -> Result<(), KernelError>;

    /// Of the rules in force, in the order of [`tidegate_core::policing::Rules`].
    fn counters(&mut self) -> Result<Vec<RuleCounters>, KernelError>;

    fn totals(&mut self) -> Result<Totals, KernelError>;

    /// The interfaces that are policed, and by what.
    fn attached(&self) -> &[AttachedTo];

    /// What an operator should know: why XDP was not used, which settings the mechanism cannot honour.
    fn notes(&self) -> &[String];

    /// The kernel programs with their rules, which [`crate::Priorities`] then share; `None` where nftables
    /// polices.
    fn programs(&self) -> Option<&Programs> {
        None
    }
}
