//! What the process does: everything, or one half of the two-process form (WebQ's TokenGen and TokenCheck).

use super::kinds::List;
use super::kinds::net::{BASE_URL, LINK_URL, SECRET};
use super::kinds::quantity::Count;
use super::read::Reader;

/// Most tokenchecks: tokengen tells no more apart.
const MAX_PEERS: usize = 64;

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
        /// The admin listeners of all tokenchecks, this one included; empty: there is only this one.
        peers: Vec<String>,
        /// Which of them this one is, from one.
        number: u16,
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

    /// The token that opens the link to this process, which is tokengen or one of several tokenchecks; empty:
    /// none does.
    pub fn link_token(&self) -> &str {
        match self {
            Self::TokenGen { link_token, .. } => link_token,
            Self::TokenCheck { link_token, peers, .. } if !peers.is_empty() => link_token,
            Self::Gate | Self::TokenCheck { .. } => "",
        }
    }

    pub(crate) fn new(name: RoleName, token_gen: TokenGenKeys, token_check: TokenCheckKeys) -> Self {
        match name {
            RoleName::Gate => Self::Gate,
            RoleName::TokenGen => {
                let TokenGenKeys { check_url, link_token } = token_gen;
                Self::TokenGen { check_url, link_token }
            }
            RoleName::TokenCheck => {
                let TokenCheckKeys { gen_url, feedback_url, link_token, peers, number } = token_check;
                Self::TokenCheck { gen_url, feedback_url, link_token, peers, number }
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
            Self::TokenCheck { gen_url, feedback_url, link_token, peers, number } => {
                token_check = TokenCheckKeys { gen_url, feedback_url, link_token, peers, number };
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
            Self::TokenCheck { gen_url, feedback_url, peers, number, .. } => f
                .debug_struct("TokenCheck")
                .field("gen_url", gen_url)
                .field("feedback_url", feedback_url)
                .field("peers", peers)
                .field("number", number)
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
        /// Base URL of the tokengen process's admin listener, which receives the observations. It is
        /// `https://` where that process has `listen.admin_https`.
        [restart] feedback_url: String = String::new() => LINK_URL;
        /// Bearer token of this link: `tokengen.link_token` of the tokengen process, not its admin token.
        /// With `peers` it also opens `POST /v1/claims` here, which other tokenchecks ask.
        [restart] link_token: String = String::new() => SECRET;
        /// Base URLs of the admin listeners of all tokenchecks, this one included, in the same order at each
        /// of them. Needed where there are several: each ticket belongs to one of them, which the others ask,
        /// so that it is used once. Empty: there is only this one.
        [restart] peers: Vec<String> = Vec::new() => List(LINK_URL);
        /// Which of `peers` this process is: 1 is the first. 0: there are none.
        [restart] number: u16 = 0 => Count(0..=64);
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
    if let Role::TokenCheck { peers, number, link_token, .. } = &settings.role {
        check_peers(peers, *number, out);
        if !peers.is_empty() && link_token.is_empty() && !settings.listen.admin_token.is_empty() {
            let expected = "a token for the link, beside `listen.admin_token` (other tokenchecks ask here)";
            out.missing("tokencheck.link_token", "role", expected.to_owned(), None);
        }
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
    if name != "tokengen" && settings.origin.replicas.is_empty() && !settings.is_for_tcp_only() {
        let hint = "Write replicas = [\"HOST:PORT\"] under [origin].".to_owned();
        out.conflict("origin.replicas", "at least one HOST:PORT", "nothing", Some(hint));
    }
}

fn check_peers(peers: &[String], number: u16, out: &mut Reader) {
    let count = peers.len();
    if count == 0 {
        if number > 0 {
            let expected = "0, or the URLs of all tokenchecks in `tokencheck.peers`";
            out.conflict("tokencheck.number", expected, number.to_string(), None);
        }
        return;
    }
    let twice = peers.iter().enumerate().find(|(at, peer)| peers[..*at].contains(peer));
    if !(2..=MAX_PEERS).contains(&count) {
        let expected = format!("the URLs of 2 to {MAX_PEERS} tokenchecks, this one included, or []");
        out.conflict("tokencheck.peers", expected, count.to_string(), None);
    } else if let Some((_, peer)) = twice {
        out.conflict(
            "tokencheck.peers",
            "a URL of its own for each tokencheck",
            format!("{peer:?} twice"),
            None,
        );
    }
    if !(1..=count).contains(&usize::from(number)) {
        let expected = format!("which of the {count} `peers` this process is, from 1");
        out.conflict("tokencheck.number", expected, number.to_string(), None);
    }
}
