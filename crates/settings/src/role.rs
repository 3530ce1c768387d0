//! What the process does: everything, or one half of the two-process form (WebQ's TokenGen and TokenCheck).

use super::kinds::net::{BASE_URL, LINK_URL, SECRET};
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
        /// What tokencheck shows to report here: good for nothing else; empty: none is asked for.
        link_token: String,
    },
    /// Checks tickets and forwards (WebQ's TokenCheck).
    TokenCheck {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        gen_url: String,
        /// Base URL of the tokengen process's admin listener, which receives the observations.
        feedback_url: String,
        /// The `link_token` of that process; empty: none.
        link_token: String,
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

    /// The token that opens the link to this process, which is tokengen; empty: none does.
    pub fn link_token(&self) -> &str {
        if let Self::TokenGen { link_token, .. } = self { link_token } else { "" }
    }

    pub(crate) fn new(name: RoleName, token_gen: TokenGenKeys, token_check: TokenCheckKeys) -> Self {
        match name {
            RoleName::Gate => Self::Gate,
            RoleName::TokenGen => {
                let TokenGenKeys { check_url, link_token } = token_gen;
                Self::TokenGen { check_url, link_token }
            }
            RoleName::TokenCheck => {
                let TokenCheckKeys { gen_url, feedback_url, link_token } = token_check;
                Self::TokenCheck { gen_url, feedback_url, link_token }
            }
        }
    }

    /// The sections of both other roles: this role's with its values, the others with defaults.
    pub(crate) fn keys(&self) -> (TokenGenKeys, TokenCheckKeys) {
        let (mut token_gen, mut token_check) = (TokenGenKeys::default(), TokenCheckKeys::default());
        match self.clone() {
            Self::Gate => {}
            Self::TokenGen { check_url, link_token } => {
                token_gen = TokenGenKeys { check_url, link_token };
            }
            Self::TokenCheck { gen_url, feedback_url, link_token } => {
                token_check = TokenCheckKeys { gen_url, feedback_url, link_token };
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
            Self::TokenGen { check_url, .. } => {
                f.debug_struct("TokenGen").field("check_url", check_url).finish_non_exhaustive()
            }
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
        /// Bearer token with which tokencheck reports to the admin listener. It opens `POST /v1/feedback` and
        /// nothing else, and `listen.admin_token` does not open that. Needed beside `listen.admin_token`.
        [restart] link_token: String = String::new() => SECRET;
    }

    /// Only for `role = "tokencheck"`: the process that checks tickets and forwards.
    pub(crate) struct TokenCheckKeys {
        /// Public base URL of the tokengen process: visitors without a valid ticket are sent there.
        [restart] gen_url: String = String::new() => BASE_URL;
        /// Base URL of the tokengen process's admin listener, which receives the observations. TLS is not
        /// spoken on this link: use a private network or a tunnel.
        [restart] feedback_url: String = String::new() => LINK_URL;
        /// Bearer token of this link: `tokengen.link_token` of the tokengen process, not its admin token.
        [restart] link_token: String = String::new() => SECRET;
    }
}

/// Reports what the role needs and lacks, and sections of other roles.
pub(crate) fn check(settings: &super::Settings, out: &mut Reader) {
    let name = settings.role.name();
    let needed: Vec<(&str, &str)> = match &settings.role {
        Role::Gate => Vec::new(),
        Role::TokenGen { check_url, .. } => vec![("tokengen.check_url", check_url)],
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
    if let Role::TokenGen { link_token, .. } = &settings.role {
        let admin_token = &settings.listen.admin_token;
        if link_token.is_empty() && !admin_token.is_empty() {
            let expected = "a token for the link, beside `listen.admin_token`";
            let hint = "Tokencheck shows it as its `link_token`; the admin token does not open the link.";
            out.missing("tokengen.link_token", "role", expected.to_owned(), Some(hint.to_owned()));
        } else if !link_token.is_empty()
            && [admin_token, &settings.listen.admin_read_token].contains(&link_token)
        {
            let expected = "another token than those of `listen`";
            out.conflict("tokengen.link_token", expected, "the same (it is not shown)", None);
        }
    }
    if name != "tokengen" && settings.origin.replicas.is_empty() {
        let hint = "Write replicas = [\"HOST:PORT\"] under [origin].".to_owned();
        out.conflict("origin.replicas", "at least one HOST:PORT", "nothing", Some(hint));
    }
}
