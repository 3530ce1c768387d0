//! Globs in linear time.
//!
//! A pattern is a small automaton whose states are the positions between its tokens. All positions that the
//! text may have reached are followed at once (Thompson's construction, CACM 11(6), 1968), so a text of n
//! bytes takes at most (n + 1) · (tokens + 1) steps for any pattern. Rejected: backtracking, which takes n⁴
//! for a pattern like `*a*a*a*b`; and the `regex` crate, whose tables cost kilobytes per pattern.
//!
//! `?` matches one byte, `*` any run of bytes; in paths neither matches a `/`, and `**` does. `/**` also
//! matches nothing, so that `/checkout/**` covers `/checkout` itself, the root of the subtree.

use crate::bits::Bits;

/// Tokens after the literal prefix: states 0..=255 fit [`Bits`].
const MAX_TOKENS: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Run,
    /// `**`: crosses the separator.
    DeepRun,
    /// The `/` of a `/**`; the next token is always `**`. Both may match nothing.
    Deep,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Glob {
    /// Compared first, because most texts differ here.
    prefix: Box<[u8]>,
    tokens: Box<[Token]>,
    separator: Option<u8>,
}

/// The pattern has more than [`MAX_TOKENS`] tokens after its literal prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooLong;

impl Glob {
    /// A pattern for values: `*` and `?` match any bytes.
    pub(super) fn value(pattern: &str) -> Result<Self, TooLong> {
        let token = |b| match b {
            b'*' => Token::Run,
            b'?' => Token::One,
            b => Token::Byte(b),
        };
        Self::assemble(pattern.bytes().map(token).collect(), None)
    }

    /// A pattern for paths. Escapes are decoded as in paths ([`super::path`]): `%2A` is a literal star.
    pub(super) fn path(pattern: &str) -> Result<Self, TooLong> {
        let mut tokens = Vec::new();
        let mut rest = pattern.as_bytes();
        while let [first, tail @ ..] = rest {
            rest = tail;
            match first {
                b'/' if tail.starts_with(b"**") && matches!(tail.get(2), None | Some(b'/')) => {
                    tokens.extend([Token::Deep, Token::DeepRun]);
                    rest = &tail[2..];
                }
                b'*' if tail.first() == Some(&b'*') => {
                    tokens.push(Token::DeepRun);
                    rest = &tail[1..];
                }
                b'*' => tokens.push(Token::Run),
                b'?' => tokens.push(Token::One),
                b'%' => match super::path::escape(tail) {
                    Some(byte) => {
                        tokens.push(Token::Byte(byte));
                        rest = &tail[2..];
                    }
                    None => {
                        // Escapes that are not decoded are compared in capitals.
                        let digits = if super::path::is_escape(tail) { 2 } else { 0 };
                        tokens.push(Token::Byte(b'%'));
                        tokens.extend(tail[..digits].iter().map(|b| Token::Byte(b.to_ascii_uppercase())));
                        rest = &tail[digits..];
                    }
                },
                b => tokens.push(Token::Byte(*b)),
            }
        }
        Self::assemble(tokens, Some(b'/'))
    }

    fn assemble(mut tokens: Vec<Token>, separator: Option<u8>) -> Result<Self, TooLong> {
        let literal = |t: &Token| if let Token::Byte(b) = t { Some(*b) } else { None };
        let prefix: Box<[u8]> = tokens.iter().map_while(literal).collect();
        tokens.drain(..prefix.len());
        tokens.dedup_by(|a, b| a == b && matches!(a, Token::Run | Token::DeepRun));
        if tokens.len() > MAX_TOKENS {
            return Err(TooLong);
        }
        Ok(Self { prefix, tokens: tokens.into(), separator })
    }

    pub(super) fn matches(&self, text: impl IntoIterator<Item = u8>) -> bool {
        self.run(text.into_iter(), || ())
    }

    /// `on_step` is called once for every state visited.
    fn run(&self, mut text: impl Iterator<Item = u8>, mut on_step: impl FnMut()) -> bool {
        if !self.prefix.iter().all(|&b| text.next() == Some(b)) {
            return false;
        }
        let mut now = Bits::default();
        now.insert(0);
        loop {
            let byte = text.next();
            let mut then = Bits::default();
            let mut from = 0;
            // Moves without a byte only lead to higher states, so one ascending pass finds them all.
            while let Some(state) = now.next_from(from) {
                on_step();
                from = state + 1;
                if state == self.tokens.len() {
                    break;
                }
                if self.tokens[state] == Token::DeepRun && from == self.tokens.len() {
                    return true;
                }
                self.leave(state, byte, &mut now, &mut then);
            }
            if byte.is_none() {
                return now.contains(self.tokens.len());
            }
            if then.is_empty() {
                return false;
            }
            now = then;
        }
    }

    /// Follows one state's token: without a byte within `now`, over `byte` into `then`.
    fn leave(&self, state: usize, byte: Option<u8>, now: &mut Bits, then: &mut Bits) {
        let in_segment = byte.is_some() && byte != self.separator;
        match self.tokens[state] {
            Token::Byte(b) if byte == Some(b) => then.insert(state + 1),
            Token::One if in_segment => then.insert(state + 1),
            Token::Byte(_) | Token::One => {}
            Token::Run | Token::DeepRun => {
                now.insert(state + 1);
                if in_segment || (byte.is_some() && self.tokens[state] == Token::DeepRun) {
                    then.insert(state);
                }
            }
            Token::Deep => {
                now.insert(state + 2);
                if byte == self.separator {
                    then.insert(state + 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps stay under (n + 1) · (tokens + 1) where backtracking would take about n⁸.
    #[test]
    fn a_pathological_pattern_takes_linear_steps() {
        for (pattern, text) in [
            ("*a*a*a*a*a*a*a*a*b", "a".repeat(4000)),
            ("/**/a/**/a/**/a/**/a/b", "/a".repeat(2000)),
            ("**a*a**a*a**b", "a/".repeat(2000)),
            (&"?*".repeat(127), "x".repeat(4000)),
        ] {
            let glob = Glob::path(pattern).unwrap();
            let mut steps = 0;
            let hit = glob.run(text.bytes(), || steps += 1);
            assert_eq!(hit, pattern.starts_with('?'), "{pattern}");
            let bound = (text.len() + 1) * (glob.tokens.len() + 1);
            assert!(steps <= bound, "{pattern}: {steps} steps, at most {bound}");
            assert!(steps > text.len() / 2, "{pattern}: {steps} steps, so the counter works");
        }
    }

    #[test]
    fn only_the_part_after_the_literal_prefix_is_bounded() {
        assert!(Glob::value(&format!("{}*", "x".repeat(5000))).is_ok());
        assert!(Glob::value(&"?".repeat(MAX_TOKENS)).is_ok());
        assert_eq!(Glob::value(&"?".repeat(MAX_TOKENS + 1)), Err(TooLong));
    }
}
