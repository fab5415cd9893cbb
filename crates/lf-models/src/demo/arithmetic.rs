//! Sums: `12 * (3 + 4)`, "what is 2 plus 3".

use std::fmt;

/// An expression with its value.
#[derive(Debug, PartialEq)]
pub(super) struct Sum {
    text: String,
    value: f64,
    addition: Option<(f64, f64)>,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.text, self.value)
    }
}

impl Sum {
    /// The sum that a sentence asks for, when it asks for one.
    pub(super) fn find(sentence: &str) -> Option<Self> {
        let mut text = sentence.to_lowercase();
        for (word, sign) in
            [(" plus ", " + "), (" minus ", " - "), (" times ", " * "), (" divided by ", " / ")]
        {
            text = text.replace(word, sign);
        }
        let start = text.find(|c: char| c.is_ascii_digit() || c == '(')?;
        let expression = text[start..].trim().trim_end_matches(['=', '?', ' ']);
        let before = text[..start].trim().trim_end_matches('-').trim();
        let asked = before.is_empty()
            || ["what is", "what's", "how much is", "calculate", "compute", "add", "sum"]
                .iter()
                .any(|words| before.ends_with(words));
        if !asked || !expression.contains(['+', '-', '*', '/']) {
            return None;
        }
        let mut reader = Reader { left: expression, numbers: Vec::new() };
        let value = reader.sum(0)?;
        if !reader.left.trim().is_empty() || !value.is_finite() {
            return None;
        }
        let signs = expression.matches(['+', '-', '*', '/', '(']).count();
        let addition = match reader.numbers[..] {
            [a, b] if signs == 1 && expression.contains('+') => Some((a, b)),
            _ => None,
        };
        Some(Self { text: expression.to_owned(), value, addition })
    }

    /// The two numbers, when it is nothing but `a + b`.
    pub(super) fn plain_addition(&self) -> Option<(f64, f64)> {
        self.addition
    }
}

/// Deepest nesting of brackets.
const DEPTH: usize = 32;

struct Reader<'a> {
    left: &'a str,
    numbers: Vec<f64>,
}

impl Reader<'_> {
    fn sum(&mut self, depth: usize) -> Option<f64> {
        let mut value = self.product(depth)?;
        while let Some(sign) = self.sign(&['+', '-']) {
            let next = self.product(depth)?;
            value = if sign == '+' { value + next } else { value - next };
        }
        Some(value)
    }

    fn product(&mut self, depth: usize) -> Option<f64> {
        let mut value = self.factor(depth)?;
        while let Some(sign) = self.sign(&['*', '/']) {
            let next = self.factor(depth)?;
            value = if sign == '*' { value * next } else { value / next };
        }
        Some(value)
    }

    fn factor(&mut self, depth: usize) -> Option<f64> {
        if depth > DEPTH {
            return None;
        }
        if self.sign(&['-']).is_some() {
            return Some(-self.factor(depth + 1)?);
        }
        if self.sign(&['(']).is_some() {
            let value = self.sum(depth + 1)?;
            return self.sign(&[')']).map(|_| value);
        }
        let text = self.left.trim_start();
        let length = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let number = text[..length].parse().ok()?;
        self.left = &text[length..];
        self.numbers.push(number);
        Some(number)
    }

    fn sign(&mut self, signs: &[char]) -> Option<char> {
        let text = self.left.trim_start();
        let first = text.chars().next().filter(|c| signs.contains(c))?;
        self.left = &text[first.len_utf8()..];
        Some(first)
    }
}
