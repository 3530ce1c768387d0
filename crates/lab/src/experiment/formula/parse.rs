//! Formulas as text: a recursive descent over characters.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = term { ("*" | "/") term }
//! term    = number | "(" sum ")" | RUN "." KEY | RUN "[" COLUMN "]" | FUNCTION "(" sum { "," sum } ")"
//! ```

use super::{Function, Mistake, Node, Operator};

/// Brackets within brackets: far more than a figure needs, and the recursion stays shallow.
const MAX_DEPTH: usize = 32;

/// Longest formula, in bytes: several times what a figure needs. Formulas are walked by recursion, too, whose
/// depth is the number of operators in a row.
const MAX_TEXT: usize = 1000;

pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    if text.len() > MAX_TEXT {
        return Err(Mistake::new(format!("at most {MAX_TEXT} bytes"), text.len().to_string()));
    }
    let mut reader = Reader { text, at: 0, depth: 0 };
    let node = reader.sum()?;
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.mistake("an operator or the end")),
    }
}

struct Reader<'t> {
    text: &'t str,
    /// Byte of the next character.
    at: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn sum(&mut self) -> Result<Node, Mistake> {
        self.chain(Self::product, [('+', Operator::Add), ('-', Operator::Subtract)])
    }

    fn product(&mut self) -> Result<Node, Mistake> {
        self.chain(Self::term, [('*', Operator::Multiply), ('/', Operator::Divide)])
    }

    fn chain(
        &mut self,
        part: fn(&mut Self) -> Result<Node, Mistake>,
        operators: [(char, Operator); 2],
    ) -> Result<Node, Mistake> {
        let mut left = part(self)?;
        loop {
            let next = self.peek();
            let Some((_, operator)) = operators.iter().find(|(sign, _)| Some(*sign) == next) else {
                return Ok(left);
            };
            self.at += 1;
            left = Node::Pair(*operator, Box::new(left), Box::new(part(self)?));
        }
    }

    fn term(&mut self) -> Result<Node, Mistake> {
        match self.peek() {
            Some('(') => Ok(self.brackets(")")?.swap_remove(0)),
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.named(),
            _ => Err(self.mistake("a number, RUN.KEY, RUN[COLUMN] or a function of them")),
        }
    }

    fn named(&mut self) -> Result<Node, Mistake> {
        let start = self.at;
        let name = self.word();
        match self.peek() {
            Some('.') => {
                self.at += 1;
                Ok(Node::Key { run: name.into(), key: self.name("a key of the run's summary")? })
            }
            Some('[') => {
                self.at += 1;
                let column = self.name("a column of the run's series")?;
                self.expect(']', "]")?;
                Ok(Node::Column { run: name.into(), column })
            }
            Some('(') => {
                let found = Function::ALL.iter().find(|(known, _)| *known == name);
                let Some((_, function)) = found else {
                    self.at = start;
                    let all: Vec<&str> = Function::ALL.iter().map(|(name, _)| *name).collect();
                    return Err(self.mistake(&format!("one of the functions {}", all.join(", "))));
                };
                Ok(Node::Call(*function, self.brackets(", or )")?))
            }
            _ => Err(self.mistake(&format!("{name}.KEY, {name}[COLUMN] or {name}(...)"))),
        }
    }

    /// What stands between brackets, separated by commas; one sum at least.
    fn brackets(&mut self, expected: &str) -> Result<Vec<Node>, Mistake> {
        self.expect('(', "(")?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.mistake(&format!("at most {MAX_DEPTH} brackets within each other")));
        }
        let mut inner = vec![self.sum()?];
        while expected.starts_with(',') && self.peek() == Some(',') {
            self.at += 1;
            inner.push(self.sum()?);
        }
        self.expect(')', expected)?;
        self.depth -= 1;
        Ok(inner)
    }

    fn number(&mut self) -> Result<Node, Mistake> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(rest.len());
        let number = rest[..end].replace('_', "").parse().map_err(|_| self.mistake("a number"))?;
        self.at += end;
        Ok(Node::Number(number))
    }

    /// A name of letters, digits and `_`.
    fn name(&mut self, expected: &str) -> Result<String, Mistake> {
        self.skip_spaces();
        match self.word() {
            "" => Err(self.mistake(expected)),
            word => Ok(word.into()),
        }
    }

    fn word(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn expect(&mut self, wanted: char, expected: &str) -> Result<(), Mistake> {
        if self.peek() != Some(wanted) {
            return Err(self.mistake(expected));
        }
        self.at += wanted.len_utf8();
        Ok(())
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_spaces();
        self.text[self.at..].chars().next()
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn mistake(&self, expected: &str) -> Mistake {
        let rest = self.text[self.at..].trim();
        let short: String = rest.chars().take(20).collect();
        let got = if short.is_empty() { "the end".into() } else { format!("{short:?}") };
        let column = self.text[..self.at].chars().count() + 1;
        Mistake::new(expected, format!("{got} at character {column} of {:?}", self.text))
    }
}
