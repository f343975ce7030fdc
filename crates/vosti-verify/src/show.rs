//! Prints terms in readable form, for explanations. Nothing is decided here.

use crate::term::{Node, Term, Terms};
use std::collections::HashMap;

impl Terms {
    /// An integer term as a person would write it, without sides and numbers of variables; `...` if it is longer than 80 bytes.
    pub fn show(&self, t: Term) -> String {
        self.shown(t, &mut HashMap::new())
    }

    /// Each term once: a term that others have in common stands in them many times.
    fn shown(&self, t: Term, known: &mut HashMap<Term, String>) -> String {
        if let Some(text) = known.get(&t) {
            return text.clone();
        }
        let plain = |name: &str| {
            let name = name.split('@').next().unwrap_or(name);
            name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('.').to_string()
        };
        let part = |t: Term, known: &mut _| match self.shown(t, known) {
            text if text.contains(' ') => format!("({text})"),
            text => text,
        };
        let text = match self.node(t) {
            Node::Linear { c, parts } => {
                let mut sum: Vec<String> = vec![];
                for (part, k) in parts {
                    let part = self.shown(*part, known);
                    sum.push(if *k == 1 { part } else { format!("{k} * {part}") });
                }
                if *c != 0 || sum.is_empty() {
                    sum.push(c.to_string());
                }
                sum.join(" + ")
            }
            Node::Var { name, .. } => plain(name),
            Node::Apply { function, args, .. } => format!("{}[{}]", plain(function), self.shown(args[0], known)),
            Node::Product(factors) => factors.iter().map(|f| part(*f, known)).collect::<Vec<_>>().join(" * "),
            Node::Div(a, d) => format!("{} / {d}", part(*a, known)),
            Node::Mod(a, d) => format!("{} mod {d}", part(*a, known)),
            _ => "...".into(),
        };
        let text = if text.len() > 80 { "...".into() } else { text };
        known.insert(t, text.clone());
        text
    }
}
