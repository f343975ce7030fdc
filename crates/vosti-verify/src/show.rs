//! Prints terms in readable form, for explanations. Nothing is decided here.

use crate::term::{Node, Term, Terms};

impl Terms {
    /// An integer term as a person would write it, without sides and numbers of variables; `...` if it is longer than 80 bytes.
    pub fn show(&self, t: Term) -> String {
        let plain = |name: &str| {
            let name = name.split('@').next().unwrap_or(name);
            name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('.').to_string()
        };
        let part = |t: Term| match self.show(t) {
            text if text.contains(' ') => format!("({text})"),
            text => text,
        };
        let text = match self.node(t) {
            Node::Linear { c, parts } => {
                let mut sum: Vec<String> = vec![];
                for (part, k) in parts {
                    let part = self.show(*part);
                    sum.push(if *k == 1 { part } else { format!("{k} * {part}") });
                }
                if *c != 0 || sum.is_empty() {
                    sum.push(c.to_string());
                }
                sum.join(" + ")
            }
            Node::Var { name, .. } => plain(name),
            Node::Apply { function, args, .. } => format!("{}[{}]", plain(function), self.show(args[0])),
            Node::Product(factors) => factors.iter().map(|f| part(*f)).collect::<Vec<_>>().join(" * "),
            Node::Div(a, d) => format!("{} / {d}", part(*a)),
            Node::Mod(a, d) => format!("{} mod {d}", part(*a)),
            _ => "...".into(),
        };
        if text.len() > 80 { "...".into() } else { text }
    }
}
