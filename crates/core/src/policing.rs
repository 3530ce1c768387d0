//! SYN policing: which rule a connection request falls under, and what the rule asks for (Voigt et al.,
//! section 2).
//!
//! The paper's rules are four-tuples of local address, local port, remote address and remote port, each of
//! which may be left open, with a token bucket `<rate, burst>` and a priority (Table 1). The kernel applies
//! them to each SYN, long before a socket exists: a refused request costs next to nothing.
//!
//! | (dst, dport, src, sport) | (rate, burst) | priority |
//! | --- | --- | --- |
//! | (\*, 80, \*, \*) | (300, 5) | 3 |
//! | (\*, 80, 10.1.1.1, \*) | (100, 5) | 2 |
//! | (\*, 80, 10.1.1.1, 654) | (100, 5) | 1 |
//! | (\*, 80, 10.1.1.5, \*) | (10, 1) | 3 |
//!
//! **The most specific rule wins** ([`Specificity`]), so that the order in the file means nothing. The
//! order is total among the rules that one SYN can match: two of the same specificity differ in an address
//! or a port, and no SYN has both. Rejected: first match wins, as in a firewall. An agent that adds a rule
//! for one aggregate would have to know where to put it.
//!
//! [`Rules::find`] and [`frame::read`] are the reference which `bpf/` is tested against: plain and slow.

pub mod agent;
pub mod frame;

mod rules;

pub use rules::{Excess, Filter, RuleError, Rules, Specificity, Syn, SynRule};
