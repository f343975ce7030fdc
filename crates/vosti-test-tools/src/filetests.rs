//! The verifier's file tests, `filetests/`: kernels that pass, broken versions of them, and pairs, each with its TTIR.
//!
//! `pass/` and `pairs/` hold Python files. `broken/NAME.patch` holds the broken versions of `pass/NAME.py`, one section for
//! each mistake:
//!
//! ```text
//! === any_argmax_tail_unchecked
//! #: mistake: logits after the vocabulary's last are read
//! #: fails: in-bounds
//! #: replay: differs
//! @@
//! -        v = tl.load(x_tile, boundary_check=(0, 1), padding_option="nan")
//! +        v = tl.load(x_tile, boundary_check=(0,), padding_option="nan")
//!          largest = tl.maximum(largest, v)
//! ```
//!
//! The broken kernel is the passing one below its notes, with each hunk's new lines in the place of its old ones. A hunk has no
//! line number: its old lines must stand once in the passing kernel.
//!
//! `texts.ttir` holds the TTIR of all of them, which `cargo xtask filetests` makes. Nothing here compares a text with its
//! source: `vosti_verify::Case` does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The file that holds all texts, from the repository's root.
pub const TEXTS: &str = "filetests/texts.ttir";

/// The first line of [`TEXTS`], and what stands above each text, before the kernel's key.
const MADE: &str = "// made by `cargo xtask filetests`; do not edit\n";
const TEXT_OF: &str = "// text of ";

/// A kernel of `filetests/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTest {
    /// `pass`, `broken` or `pairs`.
    pub folder: String,
    /// The kernel's name, which no other has.
    pub name: String,
    /// The Python text, notes and all.
    pub source: String,
    /// Its TTIR; empty if none was made.
    pub ttir: String,
}

impl FileTest {
    /// The key of its text: `broken/NAME.py`.
    pub fn key(&self) -> String {
        format!("{}/{}.py", self.folder, self.name)
    }

    /// Where its Python file is or, for a broken kernel, would be.
    pub fn path(&self) -> PathBuf {
        root().join("filetests").join(self.key())
    }
}

/// The kernels of one folder, by name.
///
/// # Panics
/// If `filetests/` cannot be read.
pub fn folder(folder: &str) -> Vec<FileTest> {
    let all = read().unwrap_or_else(|error| panic!("{error}"));
    all.into_iter().filter(|test| test.folder == folder).collect()
}

/// The kernel of this name.
///
/// # Panics
/// If `filetests/` cannot be read, or has no such kernel.
pub fn one(name: &str) -> FileTest {
    let all = read().unwrap_or_else(|error| panic!("{error}"));
    all.into_iter().find(|test| test.name == name).unwrap_or_else(|| panic!("no file test is called {name}"))
}

/// All kernels, by folder and name. An error says which file, and what is wrong with it.
pub fn read() -> Result<Vec<FileTest>, String> {
    let mut texts = texts()?;
    let (passing, pairs) = (files("pass", "py")?, files("pairs", "py")?);
    let mut sources: Vec<(&str, String, String)> = vec![];
    for (sibling, patch) in files("broken", "patch")? {
        let at = format!("filetests/broken/{sibling}.patch");
        let good = passing.get(&sibling).ok_or_else(|| format!("{at}: there is no filetests/pass/{sibling}.py"))?;
        let broken = broken(&sibling, good, &patch).map_err(|why| format!("{at}:{why}"))?;
        sources.extend(broken.into_iter().map(|(name, source)| ("broken", name, source)));
    }
    sources.sort();
    sources.extend(pairs.into_iter().map(|(name, source)| ("pairs", name, source)));
    sources.extend(passing.into_iter().map(|(name, source)| ("pass", name, source)));
    let mut names = BTreeSet::new();
    let named = |(folder, name, source): (&str, String, String)| match names.insert(name.clone()) {
        true => {
            let test = FileTest { folder: folder.into(), name, source, ttir: String::new() };
            Ok(FileTest { ttir: texts.remove(&test.key()).unwrap_or_default(), ..test })
        }
        false => Err(format!("filetests: two kernels are called {name}")),
    };
    sources.into_iter().map(named).collect()
}

/// The texts of [`TEXTS`], by the kernels' keys.
pub fn texts() -> Result<BTreeMap<String, String>, String> {
    let all = std::fs::read_to_string(root().join(TEXTS)).map_err(|error| format!("{TEXTS}: {error}"))?;
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    let mut text = None;
    for line in all.split_inclusive('\n') {
        match line.strip_prefix(TEXT_OF) {
            Some(key) => text = Some(texts.entry(key.trim_end().to_string()).or_default()),
            None => text.iter_mut().for_each(|text| text.push_str(line)),
        }
    }
    Ok(texts)
}

/// What [`TEXTS`] holds for these texts.
pub fn packed(texts: &BTreeMap<String, String>) -> String {
    let parts = texts.iter().map(|(key, text)| format!("{TEXT_OF}{key}\n{text}"));
    std::iter::once(MADE.to_string()).chain(parts).collect()
}

/// The files of a folder of `filetests/` with this ending, by their stems.
fn files(folder: &str, ending: &str) -> Result<BTreeMap<String, String>, String> {
    let folder = root().join("filetests").join(folder);
    let said = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).map_err(said)? {
        let path = entry.map_err(said)?.path();
        if path.extension().is_some_and(|end| end == ending) {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.insert(stem, std::fs::read_to_string(&path).map_err(said)?);
        }
    }
    Ok(found)
}

/// The name and the source of each section of a patch. An error begins with its line.
fn broken(sibling: &str, good: &str, patch: &str) -> Result<Vec<(String, String)>, String> {
    let good: Vec<&str> = good.lines().collect();
    let lines: Vec<(usize, &str)> = (1..).zip(patch.lines()).filter(|(_, line)| !line.is_empty()).collect();
    let mut sections = vec![];
    let mut rest = lines.as_slice();
    while let Some(((at, first), after)) = rest.split_first() {
        let name = first.strip_prefix("=== ").ok_or_else(|| format!("{at}: a section begins with `=== NAME`"))?;
        let end = after.iter().position(|(_, line)| line.starts_with("=== ")).unwrap_or(after.len());
        let (section, next) = after.split_at(end);
        let notes = section.iter().take_while(|(_, line)| line.starts_with("#: ")).count();
        let (notes, hunks) = section.split_at(notes);
        let head = std::iter::once(format!("#: sibling: {sibling}"));
        let head = head.chain(notes.iter().map(|(_, note)| note.to_string()));
        let body = changed(&good, hunks)?;
        let body = body.iter().map(|line| line.to_string());
        sections.push((name.to_string(), head.chain(body).map(|line| line + "\n").collect()));
        rest = next;
    }
    Ok(sections)
}

/// The lines of a passing kernel with the changes of these hunks, each of which begins with `@@`.
fn changed<'t>(good: &[&'t str], hunks: &[(usize, &'t str)]) -> Result<Vec<&'t str>, String> {
    let mut places = vec![];
    if let Some((at, line)) = hunks.first().filter(|(_, line)| *line != "@@") {
        return Err(format!("{at}: `{line}` is neither a note (`#: `) nor the first line of a hunk (`@@`)"));
    }
    for hunk in hunks.split(|(_, line)| *line == "@@").skip(1) {
        let at = hunk.first().map_or_else(|| hunks[0].0, |(at, _)| *at);
        if let Some((at, line)) = hunk.iter().find(|(_, line)| !line.starts_with([' ', '-', '+'])) {
            return Err(format!("{at}: `{line}` begins neither with `-`, `+` nor a space"));
        }
        let side =
            |other: char| hunk.iter().filter(move |(_, line)| !line.starts_with(other)).map(|(_, line)| &line[1..]);
        let (old, new): (Vec<&str>, Vec<&str>) = (side('+').collect(), side('-').collect());
        if old == new || old.is_empty() {
            return Err(format!("{at}: the hunk changes nothing, or has no line of the passing kernel"));
        }
        let found: Vec<usize> = (0..good.len()).filter(|start| good[*start..].starts_with(&old)).collect();
        match found[..] {
            [start] => places.push((start, old.len(), new, at)),
            _ => {
                let times = found.len();
                return Err(format!("{at}: the hunk's old lines stand {times} times in the passing kernel, not once"));
            }
        }
    }
    places.sort();
    let (mut lines, mut done) = (vec![], 0);
    for (start, len, new, at) in places {
        if start < done {
            return Err(format!("{at}: two hunks change the same lines"));
        }
        lines.extend_from_slice(&good[done..start]);
        lines.extend(new);
        done = start + len;
    }
    lines.extend_from_slice(&good[done..]);
    Ok(lines)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "a = 1\nb = 2\n\nc = 3\nb = 2\n";

    fn made(patch: &str) -> Result<Vec<(String, String)>, String> {
        broken("good", GOOD, patch)
    }

    #[test]
    fn a_section_is_the_passing_kernel_with_its_changes() {
        let patch =
            "=== first\n#: fails: guard\n@@\n-c = 3\n b = 2\n+d = 4\n@@\n-a = 1\n\n=== types\n#: fails: contract\n";
        let wanted = [
            ("first", "#: sibling: good\n#: fails: guard\nb = 2\n\nb = 2\nd = 4\n"),
            ("types", "#: sibling: good\n#: fails: contract\na = 1\nb = 2\n\nc = 3\nb = 2\n"),
        ];
        assert_eq!(made(patch).unwrap(), wanted.map(|(name, source)| (name.to_string(), source.to_string())));
    }

    #[test]
    fn a_patch_that_is_none_is_refused_with_its_line() {
        for (patch, says) in [
            ("first\n", "1: a section begins with"),
            ("=== x\n#: fails: guard\nmistake: none\n@@\n-a = 1\n", "3: `mistake: none` is neither a note"),
            ("=== x\n@@\n-b = 2\n+b = 3\n", "3: the hunk's old lines stand 2 times"),
            ("=== x\n@@\n-b = 4\n", "3: the hunk's old lines stand 0 times"),
            ("=== x\n@@\n+d = 4\n", "3: the hunk changes nothing, or has no line"),
            ("=== x\n@@\n a = 1\n", "3: the hunk changes nothing"),
            ("=== x\n@@\n-a = 1\nb = 3\n", "4: `b = 3` begins neither"),
            ("=== x\n@@\n-a = 1\n b = 2\n@@\n-a = 1\n", "3: two hunks change the same lines"),
        ] {
            let why = made(patch).unwrap_err();
            assert!(why.starts_with(says), "{patch}: {why}");
        }
    }

    #[test]
    fn texts_are_read_as_they_are_packed() {
        let texts = texts().unwrap();
        assert!(texts.len() > 800 && texts.values().all(|text| text.ends_with("\n") && !text.ends_with("\n\n")));
        assert!(packed(&texts) == std::fs::read_to_string(root().join(TEXTS)).unwrap());
    }
}
