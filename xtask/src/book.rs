//! `cargo xtask book`: the pages of the root and of docs/ as one mdBook, without a warning and without a dead link.
//!
//! The book's source is a copy of the pages and of the files that they link, at the same relative paths, so that a link works
//! on a code host and in the book.
//! Read next: `tidy/links.rs`, which checks the links of the pages themselves.

use crate::tidy::links::{beside, links, pages};
use crate::tidy::{File, tracked};
use crate::{root, run_command, target_folder};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The book's pages, in order.
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// The version of mdBook; it is installed under target/ when it is first needed.
const MDBOOK: &str = "0.5.4";

/// Builds the book and prints where it is.
pub fn run() -> Result<()> {
    let (source, built) = (target_folder().join("book-source"), target_folder().join("book"));
    for folder in [&source, &built].into_iter().filter(|folder| folder.exists()) {
        fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    copy(&tracked()?, &source)?;
    let mut mdbook = Command::new(mdbook()?);
    let result = mdbook.arg("build").arg("--dest-dir").arg(&built).arg(&source).output().context("mdbook")?;
    let said = String::from_utf8_lossy(&result.stderr);
    let warned = said.lines().any(|line| line.contains("WARN") || line.contains("ERROR"));
    ensure!(result.status.success() && !warned, "mdbook says:\n{said}");
    let dead = dead_links(&built)?;
    ensure!(dead.is_empty(), "links of the book that lead nowhere:\n{}", dead.join("\n"));
    println!("{}", built.join("index.html").display());
    Ok(())
}

/// Copies the pages, the files that they link, and the list of pages to where mdBook looks for it.
fn copy(files: &[File], source: &Path) -> Result<()> {
    let put = |path: &str, text: &str| {
        let to = source.join("src").join(path);
        fs::create_dir_all(to.parent().unwrap_or(source))?;
        fs::write(&to, text).with_context(|| to.display().to_string())
    };
    for page in pages(files) {
        if page.path == SUMMARY {
            put("SUMMARY.md", &rebased(&page.text))?;
            continue;
        }
        put(&page.path, &page.text)?;
        for link in links(&page.text).iter().filter(|link| !link.contains(':')) {
            let path = beside(&page.path, link.split('#').next().unwrap_or(link));
            if !path.ends_with(".md")
                && let Some(file) = files.iter().find(|file| file.path == path)
            {
                put(&file.path, &file.text)?;
            }
        }
    }
    fs::copy(root().join("docs/book.toml"), source.join("book.toml")).context("docs/book.toml").map(drop)
}

/// The list of pages with its links relative to the root.
fn rebased(summary: &str) -> String {
    links(summary).into_iter().fold(summary.to_string(), |text, link| {
        text.replace(&format!("]({link})"), &format!("]({})", beside(SUMMARY, &link)))
    })
}

fn mdbook() -> Result<PathBuf> {
    let folder = target_folder().join("mdbook").join(MDBOOK);
    let program = folder.join("bin/mdbook");
    if !program.exists() {
        // Without server, watcher and search index, and without optimisation, which would not pay for so few pages.
        let arguments =
            ["install", "mdbook", "--version", MDBOOK, "--locked", "--debug", "--no-default-features", "--root"];
        run_command(Command::new(env!("CARGO")).args(arguments).arg(&folder).current_dir(target_folder()))?;
    }
    Ok(program)
}

/// Links of the built pages to files that do not exist.
fn dead_links(built: &Path) -> Result<Vec<String>> {
    let (mut dead, mut folders, mut seen) = (Vec::new(), vec![built.to_path_buf()], 0);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "html") {
                let text = fs::read_to_string(&path)?;
                for link in text.split("<a ").skip(1).filter_map(|rest| rest.split('>').next()?.split("href=\"").nth(1))
                {
                    let link = link.split(['"', '#']).next().unwrap_or("");
                    seen += 1;
                    if !link.contains(':') && !link.is_empty() && !folder.join(link).exists() {
                        dead.push(format!("{}: {link}", path.display()));
                    }
                }
            }
        }
    }
    ensure!(seen > 100, "the book has {seen} links, so this checks nothing");
    Ok(dead)
}

#[cfg(test)]
mod tests {
    use super::rebased;

    #[test]
    fn the_list_of_pages_is_seen_from_the_root() {
        assert_eq!(rebased("- [A](../README.md)\n  - [B](how/b.md)"), "- [A](README.md)\n  - [B](docs/how/b.md)");
    }
}
