//! Sessions, as the configuration has them.

use tidegate_core::admission::SessionRules;
use tidegate_core::session::{Cap, SessionConfig};

use super::Config;
use tidegate_settings::{Role, SessionBy, SessionMax};

impl Config {
    /// How long a session's pass holds.
    pub fn session_rules(&self) -> SessionRules {
        SessionRules { timeout: self.settings.session.timeout, max_age: self.settings.session.max_age }
    }

    /// Whether sessions are admitted here: tokengen forwards nothing, and its visitors' sessions are tokencheck's.
    pub fn seats_visitors(&self) -> bool {
        self.settings.counts_sessions() && !matches!(self.settings.role, Role::TokenGen { .. })
    }

    /// For the table of sessions.
    pub fn session_config(&self) -> SessionConfig {
        let session = &self.settings.session;
        let places = |places: usize| u32::try_from(places).unwrap_or(u32::MAX);
        let own = self.tiers.iter().filter(|(_, tier)| tier.max_sessions > 0);
        SessionConfig {
            timeout: session.timeout,
            max_age: session.max_age,
            cap: match session.max {
                SessionMax::None => Cap::None,
                SessionMax::Discovered => Cap::Discovered,
                SessionMax::Fixed(n) => Cap::Fixed(n),
            },
            max_entries: session.max_entries,
            // Only a pass would be good again: a cookie or an address that comes back is a newcomer in any case.
            remembers_ended: session.key == SessionBy::Pass,
            pools: own.map(|(id, tier)| (id, places(tier.max_sessions))).collect(),
        }
    }
}
