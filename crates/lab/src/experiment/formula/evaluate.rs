//! Evaluates checked formulas.

use super::{Function, Node, Operator};

/// Points of a curve: x and value.
pub type Curve = Vec<(f64, f64)>;

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One figure; not a number if a run did not give it.
    Number(f64),
    /// Figures over something, in its order.
    Curve(Curve),
}

pub trait Source {
    /// A key of a run's summary; of a sweep the curve over its values.
    fn key(&self, run: &str, key: &str) -> Option<Value>;
    fn column(&self, run: &str, column: &str) -> Option<Curve>;
}

impl Value {
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) if number.is_finite() => Some(*number),
            _ => None,
        }
    }

    pub fn curve(self) -> Curve {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Curve(points) => points,
        }
    }

    fn or_nan(&self) -> f64 {
        self.number().unwrap_or(f64::NAN)
    }
}

pub(super) fn evaluate(node: &Node, source: &(impl Source + ?Sized)) -> Value {
    match node {
        Node::Number(number) => Value::Number(*number),
        Node::Key { run, key } => source.key(run, key).unwrap_or(Value::Number(f64::NAN)),
        Node::Column { run, column } => Value::Curve(source.column(run, column).unwrap_or_default()),
        Node::Pair(operator, left, right) => {
            combine(evaluate(left, source), evaluate(right, source), |a, b| match operator {
                Operator::Add => a + b,
                Operator::Subtract => a - b,
                Operator::Multiply => a * b,
                Operator::Divide => a / b,
            })
        }
        Node::Call(function, arguments) => {
            call(*function, arguments.iter().map(|argument| evaluate(argument, source)))
        }
    }
}

fn combine(left: Value, right: Value, apply: impl Fn(f64, f64) -> f64) -> Value {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => Value::Number(apply(a, b)),
        (Value::Curve(points), Value::Number(b)) => {
            Value::Curve(points.into_iter().map(|(x, a)| (x, apply(a, b))).collect())
        }
        (Value::Number(a), Value::Curve(points)) => {
            Value::Curve(points.into_iter().map(|(x, b)| (x, apply(a, b))).collect())
        }
        // Where only one of the two has a point, there is nothing to compare.
        (Value::Curve(left), Value::Curve(right)) => {
            let at = |x: f64| right.iter().find(|(other, _)| *other == x).map(|(_, b)| *b);
            Value::Curve(left.into_iter().filter_map(|(x, a)| at(x).map(|b| (x, apply(a, b)))).collect())
        }
    }
}

fn call(function: Function, mut arguments: impl Iterator<Item = Value>) -> Value {
    if function == Function::Greater {
        // A comparison with NaN is false, so an unknown value is never less.
        let numbers: Vec<f64> = arguments.map(|value| value.or_nan()).collect();
        let unknown = numbers.iter().any(|number| number.is_nan());
        return Value::Number(if unknown { f64::NAN } else { numbers.into_iter().fold(f64::MIN, f64::max) });
    }
    if function == Function::Higher {
        let mut curve = || arguments.next().unwrap_or(Value::Curve(Vec::new()));
        let (left, right) = (curve(), curve());
        return combine(left, right, f64::max);
    }
    let mut points = arguments.next().map(Value::curve).unwrap_or_default();
    // A second in which nothing was measured (0/0) has no value; it must not hide the others.
    points.retain(|(_, y)| y.is_finite());
    let mut number = || arguments.next().map_or(f64::NAN, |value| value.or_nan());
    let values = points.iter().map(|(_, y)| *y);
    let count = points.len() as f64;
    Value::Number(match function {
        Function::Max => values.reduce(f64::max).unwrap_or(f64::NAN),
        Function::Min => values.reduce(f64::min).unwrap_or(f64::NAN),
        Function::Mean => values.sum::<f64>() / count,
        Function::Sum => values.reduce(|a, b| a + b).unwrap_or(f64::NAN),
        Function::Argmax => argmax(&points),
        Function::Upto => {
            let least = number();
            points.iter().take_while(|(_, y)| *y >= least).last().map_or(f64::NAN, |(x, _)| *x)
        }
        Function::Settled => {
            let (target, share) = (number(), number());
            settled(&points, target, share)
        }
        Function::Greater | Function::Higher => unreachable!("they have been seen to"),
        Function::Shift => {
            let by = number();
            return Value::Curve(points.into_iter().map(|(x, y)| (x + by, y)).collect());
        }
        Function::Smooth => {
            let over = number();
            // Values of a sweep come in any order.
            points.sort_by(|(x, _), (other, _)| x.total_cmp(other));
            return Value::Curve(points.iter().map(|(x, _)| (*x, mean_before(&points, *x, over))).collect());
        }
        Function::Place => return Value::Curve(points.into_iter().map(|(x, _)| (x, x)).collect()),
        Function::Within => {
            let (from, to) = (number(), number());
            points.retain(|(x, _)| (from..to).contains(x));
            return Value::Curve(points);
        }
    })
}

fn argmax(points: &[(f64, f64)]) -> f64 {
    let best = points.iter().reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(f64::NAN, |(x, _)| *x)
}

/// Not a number if the curve is not near the target at its end.
fn settled(points: &[(f64, f64)], target: f64, share: f64) -> f64 {
    let near = |(_, y): &&(f64, f64)| (y - target).abs() <= share * target.abs();
    points.iter().rev().take_while(near).last().map_or(f64::NAN, |(x, _)| *x)
}

/// The mean of the points in (x - over, x]; that at x is always one of them.
fn mean_before(points: &[(f64, f64)], x: f64, over: f64) -> f64 {
    let end = points.partition_point(|(other, _)| *other <= x);
    let begin = points.partition_point(|(other, _)| *other <= x - over).min(end - 1);
    points[begin..end].iter().map(|(_, y)| y).sum::<f64>() / (end - begin) as f64
}
