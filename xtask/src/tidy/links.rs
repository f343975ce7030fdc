//! Rules for links between pages: the file and the heading of a link exist, and every page is in the book. Links to other
//! sites are not checked.
//! Read next: `book.rs`, which makes the book and checks its links.

use super::File;
use crate::book::SUMMARY;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};

/// A link must lead to an existing file and heading.
pub fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let there: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let headings: BTreeMap<&str, BTreeSet<String>> =
        pages(files).map(|file| (file.path.as_str(), anchors(&file.text))).collect();
    let mut breaches = Vec::new();
    for page in pages(files) {
        for link in links(&page.text).into_iter().filter(|link| !link.contains(':')) {
            let (path, anchor) = link.split_once('#').map_or((link.as_str(), None), |(path, name)| (path, Some(name)));
            let path = if path.is_empty() { page.path.clone() } else { beside(&page.path, path) };
            if !there.contains(path.as_str()) {
                breaches.push(format!("{}: links to {link}, which is not there", page.path));
            } else if let (Some(anchor), Some(known)) = (anchor, headings.get(path.as_str()))
                && !known.contains(anchor)
            {
                breaches.push(format!("{}: links to {link}, and {path} has no such heading", page.path));
            }
        }
    }
    breaches
}

/// The book's list must name every page, or readers do not find it.
pub fn the_book_has_every_page(files: &[File]) -> Vec<String> {
    let summary = files.iter().find(|file| file.path == SUMMARY);
    let Some(summary) = summary else { return vec![format!("{SUMMARY}: is not there")] };
    let named: BTreeSet<String> = links(&summary.text).iter().map(|link| beside(SUMMARY, link)).collect();
    let outside = pages(files).filter(|page| page.path != SUMMARY && !named.contains(&page.path));
    outside.map(|page| format!("{SUMMARY}: does not name {}", page.path)).collect()
}

/// The pages of the book: those of the root and of docs/.
pub fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    let read = |path: &str| path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
    files.iter().filter(move |file| read(&file.path))
}

/// Destinations of a page's links and pictures, in order.
pub fn links(text: &str) -> Vec<String> {
    let destination = |event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    };
    Parser::new_ext(text, Options::ENABLE_TABLES).filter_map(destination).collect()
}

/// The names of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut names, mut heading) = (BTreeSet::new(), None::<String>);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
            (Event::End(TagEnd::Heading(_)), _) => {
                let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
                let text = heading.take().unwrap_or_default().to_lowercase();
                let name: String = text.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect();
                let next = (1..).map(|i| format!("{name}-{i}")).find(|other| !names.contains(other));
                let taken = names.contains(&name);
                names.extend(if taken { next } else { Some(name) });
            }
            _ => {}
        }
    }
    names
}

/// The path from the root of a path that is relative to a page.
pub fn beside(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            ".." => _ = parts.pop(),
            "." | "" => {}
            other => parts.push(other),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn a_dead_link_and_a_dead_heading_are_seen() {
        let found = |text: &str| {
            let other = file("docs/b.md", "# The `two` of us\n\n## Again\n\n## Again\n");
            links_lead_somewhere(&[file("docs/a.md", text), other, file("README.md", "")]).len()
        };
        let right = "[b](b.md#the-two-of-us) [r](../README.md) [a](b.md#again-1) <https://example.org> `[c](c.md)`";
        assert_eq!(found(right), 0);
        assert_eq!(found("[c](c.md) [r](README.md) ![p](picture/p.svg)"), 3);
        assert_eq!(found("[b](b.md#three) [own](#nothing)\n\n[own](#own)\n\n# Own"), 2);
    }

    #[test]
    fn a_page_outside_the_book_is_seen() {
        let found = |summary: &str| the_book_has_every_page(&[file(SUMMARY, summary), file("docs/a.md", "")]).len();
        assert_eq!((found("- [A](a.md)"), found("- [B](b.md)")), (0, 1));
        assert_eq!(the_book_has_every_page(&[]).len(), 1);
    }
}
