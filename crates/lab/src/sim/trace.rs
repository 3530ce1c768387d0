//! The trace of a run: the last steps in full, to explain a violation, and a hash of all steps.
//!
//! Steps are kept as numbers and formatted only when they are shown: most never are.

use std::collections::VecDeque;
use std::fmt;

/// Steps shown with a violation.
pub const STEPS_SHOWN: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in microseconds from the start.
    pub at_us: u64,
    pub what: What,
    /// A visitor's number (reused after it has left), or a replica's.
    pub who: u32,
    /// More about it: see [`What`].
    pub more: u64,
}

macro_rules! steps {
    ($($name:ident $text:literal)*) => {
        /// What a step was; after the name, what [`Step::more`] is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum What {
            $(#[doc = $text] $name,)*
        }

        impl What {
            fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

steps! {
    Asks "asks for the page; step"
    Polls "asks for news"
    Tampers "shows an altered ticket"
    Replays "shows a used ticket"
    Enters "is let in at once; class"
    Redeems "is let in with a ticket; due us"
    Passes "is let in with a pass; class"
    Promised "gets a place; due us"
    Keeps "keeps the place; due us"
    Full "is told the room is full"
    Forbidden "is refused as forged"
    Held "waits: no replica is up"
    SentOn "is sent to tokencheck"
    SentBack "is sent to tokengen"
    News "gets news; state"
    Queued "waits at the gate; class"
    Woken "leaves the gate's queue; class"
    Shed "is refused by the gate; class"
    Sent "goes to the origin; replica"
    Refused "finds the backlog full; replica"
    NoConnection "finds no replica; replica"
    Done "is served; replica"
    Wasted "is served though gone; replica"
    Lost "is lost at the origin; replica"
    Silent "got no answer in time; replica"
    GivesUp "gives up a request"
    Gets "gets the page"
    Fails "gets an error; status"
    Leaves "leaves; 0 done 1 no-show 2 tired 3 failed 4 deadline"
    Tick "control tick; process"
    Feedback "tokencheck reports; 1 if it arrived"
    Fault "a fault begins; its number"
    Mended "a fault ends; its number"
    Change "the origin changes; its number"
    Head "gets the head of an answer; replica"
    Error "gets an error; replica"
    AsksPart "asks for a part of its page; step"
    PolicyRefuses "is refused by a rule; policy"
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, us) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        let (text, more) = self.what.text().split_once("; ").unwrap_or((self.what.text(), ""));
        write!(f, "{seconds:>6}.{us:06}  #{:<8} {text}", self.who)?;
        if more.is_empty() { Ok(()) } else { write!(f, " ({more} {})", self.more) }
    }
}

pub(crate) struct Trace {
    last: VecDeque<Step>,
    keep: usize,
    pub(crate) count: u64,
    pub(crate) digest: u64,
}

impl Trace {
    pub(crate) fn new(keep: usize) -> Self {
        Self { last: VecDeque::with_capacity(keep), keep, count: 0, digest: 0x243F_6A88_85A3_08D3 }
    }

    #[inline]
    pub(crate) fn step(&mut self, at_us: u64, what: What, who: u32, more: u64) {
        self.count += 1;
        // Multiply and rotate: every bit of every step moves the end, at a nanosecond each.
        let word = at_us ^ (u64::from(who) << 32) ^ ((what as u64) << 56) ^ more.rotate_left(17);
        self.digest = (self.digest ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        if self.last.len() == self.keep {
            self.last.pop_front();
        }
        if self.keep > 0 {
            self.last.push_back(Step { at_us, what, who, more });
        }
    }

    pub(crate) fn last(&self, n: usize) -> Vec<Step> {
        self.last.iter().skip(self.last.len().saturating_sub(n)).copied().collect()
    }
}
