//! What the process does: everything, or one half of the two-process form (WebQ's TokenGen and TokenCheck).

use super::kinds::net::{BASE_URL, SECRET};
use super::read::Reader;

/// What this process does.
#[derive(Clone, PartialEq, Default)]
pub enum Role {
    /// Everything.
    #[default]
    Gate,
    /// Gives visitors their turns (WebQ's TokenGen): redirects to `check_url` when it is a visitor's turn.
    TokenGen {
        /// Public base URL of the tokencheck process, e.g. `https://check.shop.example`.
        check_url: String,
    },
    /// Checks tickets and forwards (WebQ's TokenCheck).
    TokenCheck {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        gen_url: String,
        /// Base URL of the tokengen process's admin listener, which receives the observations.
        feedback_url: String,
        /// Bearer token of that listener; empty: none.
        feedback_token: String,
    },
}

impl Role {
    /// The name in the configuration.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::TokenGen { .. } => "tokengen",
            Self::TokenCheck { .. } => "tokencheck",
        }
    }

    pub(crate) fn new(name: RoleName, token_gen: TokenGenKeys, token_check: TokenCheckKeys) -> Self {
        match name {
            RoleName::Gate => Self::Gate,
            RoleName::TokenGen => Self::TokenGen { check_url: token_gen.check_url },
            RoleName::TokenCheck => {
                let TokenCheckKeys { gen_url, feedback_url, feedback_token } = token_check;
                Self::TokenCheck { gen_url, feedback_url, feedback_token }
            }
        }
    }

    /// The sections of both other roles: this role's with its values, the others with defaults.
    pub(crate) fn keys(&self) -> (TokenGenKeys, TokenCheckKeys) {
        let (mut token_gen, mut token_check) = (TokenGenKeys::default(), TokenCheckKeys::default());
        match self.clone() {
            Self::Gate => {}
            Self::TokenGen { check_url } => token_gen.check_url = check_url,
            Self::TokenCheck { gen_url, feedback_url, feedback_token } => {
                token_check = TokenCheckKeys { gen_url, feedback_url, feedback_token };
            }
        }
        (token_gen, token_check)
    }
}

/// Without the token.
impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gate => f.write_str("Gate"),
            Self::TokenGen { check_url } => f.debug_struct("TokenGen").field("check_url", check_url).finish(),
            Self::TokenCheck { gen_url, feedback_url, .. } => f
                .debug_struct("TokenCheck")
                .field("gen_url", gen_url)
                .field("feedback_url", feedback_url)
                .finish_non_exhaustive(),
        }
    }
}

named! {
    /// The value of `role`, before its section is read.
    pub(crate) enum RoleName {
        #[default] Gate = "gate",
        TokenGen = "tokengen",
        TokenCheck = "tokencheck",
    }
}

section! {
    /// Only for `role = "tokengen"`: the process that gives visitors their turns.
    pub(crate) struct TokenGenKeys {
        /// Public base URL of the tokencheck process: visitors whose turn it is are sent there.
        [restart] check_url: String = String::new() => BASE_URL;
    }

    /// Only for `role = "tokencheck"`: the process that checks tickets and forwards.
    pub(crate) struct TokenCheckKeys {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        [restart] gen_url: String = String::new() => BASE_URL;
        /// Base URL of the tokengen process's admin listener, which receives the observations.
        [restart] feedback_url: String = String::new() => BASE_URL;
        /// Bearer token of that listener (`listen.admin_token` of the tokengen process).
        [restart] feedback_token: String = String::new() => SECRET;
    }
}

/// Reports what the role needs and lacks, and sections of other roles.
pub(crate) fn check(settings: &super::Settings, out: &mut Reader) {
    let name = settings.role.name();
    let needed: Vec<(&str, &str)> = match &settings.role {
        Role::Gate => Vec::new(),
        Role::TokenGen { check_url } => vec![("tokengen.check_url", check_url)],
        Role::TokenCheck { gen_url, feedback_url, .. } => {
            vec![("tokencheck.gen_url", gen_url), ("tokencheck.feedback_url", feedback_url)]
        }
    };
    for (key, _) in needed.into_iter().filter(|(_, url)| url.is_empty()) {
        out.missing(key, "role", format!("a URL (role \"{name}\" needs it)"), None);
    }
    for other in ["tokengen", "tokencheck"] {
        if other != name && out.has(other) {
            let (expected, hint) =
                (format!("no [{other}] in role \"{name}\""), format!("Set role = \"{other}\"?"));
            out.conflict(other, expected, "a section that has no effect", Some(hint));
        }
    }
    if name != "gate" && settings.room.keys.is_empty() {
        let hint = "Give both processes the same keys.".to_owned();
        let expected = format!("a key ring (role \"{name}\" shares it with the other process)");
        out.missing("room.keys", "role", expected, Some(hint));
    }
    if name != "tokengen" && settings.origin.replicas.is_empty() {
        let hint = "Write replicas = [\"HOST:PORT\"] under [origin].".to_owned();
        out.conflict("origin.replicas", "at least one HOST:PORT", "nothing", Some(hint));
    }
}
