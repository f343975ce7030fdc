//! Any model of a hub by name: `ORG/REPO`, with `:QUANT` for one GGUF file of several and `@REVISION` for a revision other
//! than `main`.
//!
//! Fetched files lie where Hugging Face's own client keeps them (`HF_HUB_CACHE`, or `hub` in `HF_HOME`), in its layout, so
//! each client uses the other's files. A file appears under its name only when all its bytes are there and have the hash of
//! the hub's listing; a revision is recorded only when all its files are there. Complete models are used without asking the
//! hub ([`HubCache::find`]); [`fetch`] asks it. Read next: `hub.rs` (downloads).

use super::hub::{self, Endpoint};
use super::{FetchError, HUB_CACHE, lock, room};
use serde::Deserialize;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vosti_engine::progress::Progress;

/// The quantisation that is taken if a repository has several and the name says none; llama.cpp takes the same one.
const QUANT_DEFAULT: &str = "Q4_K_M";

/// A longer listing than any repository has.
const LISTING_BYTES_MAX: u64 = 64 << 20;

/// Levels of folders below `refs` that are searched for branches: a branch's name may have slashes.
const REVISION_LEVELS: usize = 4;

/// The files of a Hugging Face folder that are read beside its tensors.
const BESIDE: [&str; 7] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
];

/// A model on a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// `ORG/REPO`.
    pub name: String,
    /// `Q4_K_M` and the like; `None` where the name says none.
    pub quant: Option<String>,
    /// A branch, a tag or a commit.
    pub revision: String,
}

impl FromStr for Repository {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (text, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (name, quant) = text.split_once(':').map_or((text, None), |(name, quant)| (name, Some(quant.to_string())));
        let word = |word: &str| {
            !word.is_empty()
                && !word.starts_with('.')
                && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let (org, repo) = name.split_once('/').ok_or(())?;
        let file = [".gguf", ".json", ".safetensors"].iter().any(|end| repo.ends_with(end));
        // A branch, and a pull request's, may hold slashes.
        let branch = revision.split('/').all(word);
        let right = word(org) && word(repo) && !file && quant.as_deref().is_none_or(word) && branch;
        right.then(|| Repository { name: name.into(), quant, revision: revision.into() }).ok_or(())
    }
}

/// A model whose files are all on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// A GGUF file or the first of its parts, or a folder.
    pub path: PathBuf,
    /// The commit that its files are of.
    pub commit: String,
}

/// The folder that Hugging Face's client keeps models in.
#[derive(Clone, Debug)]
pub struct HubCache {
    root: PathBuf,
}

impl HubCache {
    /// `HF_HUB_CACHE`, or `hub` in `HF_HOME`, or `~/.cache/huggingface/hub`.
    pub fn of_user() -> Result<Self, FetchError> {
        let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = || from("XDG_CACHE_HOME").or_else(|| Some(from("HOME")?.join(".cache")));
        let home = || from("HF_HOME").or_else(|| Some(cache()?.join("huggingface")));
        let root = from("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub")));
        root.map(|root| HubCache { root }).ok_or(FetchError::NoCacheDirectory)
    }

    /// The cache in this folder.
    pub fn at(root: &Path) -> Self {
        HubCache { root: root.to_path_buf() }
    }

    fn folder(&self, repository: &Repository) -> PathBuf {
        self.root.join(format!("models--{}", repository.name.replace('/', "--")))
    }

    /// The model as any client fetched it last; none if it is not on this machine or files are missing.
    pub fn find(&self, repository: &Repository) -> Option<Found> {
        let (snapshot, commit) = self.snapshot(repository)?;
        let names = names_in(&snapshot, 1);
        let chosen = choose(repository, names.iter().map(String::as_str)).ok()?;
        let whole = |name: &&str| snapshot.join(name).exists();
        match chosen {
            Chosen::Files(names) => {
                names.iter().all(whole).then(|| Found { path: snapshot.join(names[0]), commit: commit.clone() })
            }
            Chosen::Folder(_) => {
                let index = fs::read_to_string(snapshot.join("model.safetensors.index.json")).unwrap_or_default();
                #[derive(Deserialize, Default)]
                struct Index {
                    weight_map: std::collections::BTreeMap<String, String>,
                }
                let index: Index = serde_json::from_str(&index).unwrap_or_default();
                // Other clients record a branch before its files are there.
                let text = snapshot.join("tokenizer.json").exists();
                let all = text && index.weight_map.values().all(|name| snapshot.join(name).exists());
                all.then(|| Found { path: snapshot.clone(), commit: commit.clone() })
            }
        }
    }

    /// The models in the cache, named as `--model` takes them: a folder by its repository, a GGUF file with its quantisation.
    pub fn models(&self) -> Vec<(String, Found)> {
        let mut models = Vec::new();
        for folder in names_below(&self.root) {
            let Some((org, repo)) = folder.strip_prefix("models--").and_then(|name| name.split_once("--")) else {
                continue;
            };
            let name = format!("{org}/{repo}");
            let Ok(repository) = name.parse::<Repository>() else { continue };
            if let Some(found) = self.find(&repository).filter(|found| found.path.is_dir()) {
                models.push((name.clone(), found));
            }
            let files = self.snapshot(&repository).map(|(snapshot, _)| names_in(&snapshot, 1)).unwrap_or_default();
            let first = |file: &&String| file.ends_with(".gguf") && part_of(file).is_none_or(|(_, part, _)| part == 1);
            for file in files.iter().filter(first) {
                let name = format!("{name}:{}", quant_of(file));
                let found = name.parse().ok().and_then(|repository| self.find(&repository));
                models.extend(found.map(|found| (name, found)));
            }
        }
        models
    }

    /// Where the files of a revision are, and its commit.
    fn snapshot(&self, repository: &Repository) -> Option<(PathBuf, String)> {
        let folder = self.folder(repository);
        let refs = folder.join("refs");
        let recorded = |name: &str| Some(fs::read_to_string(refs.join(name)).ok()?.trim().to_string());
        // A commit is in the cache if a branch is recorded at it.
        let pinned = || {
            let all = names_in(&refs, REVISION_LEVELS);
            all.iter().filter_map(|name| recorded(name)).find(|commit| *commit == repository.revision)
        };
        let commit = recorded(&repository.revision).or_else(pinned)?;
        Some((folder.join("snapshots").join(&commit), commit))
    }
}

/// The names of what is in a folder, in order.
fn names_below(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The files of a folder and of those in it, so many levels down, as a listing names them.
fn names_in(folder: &Path, levels: usize) -> Vec<String> {
    let mut names = Vec::new();
    for name in names_below(folder) {
        let path = folder.join(&name);
        match path.is_dir() && levels > 0 {
            true => names.extend(names_in(&path, levels - 1).into_iter().map(|below| format!("{name}/{below}"))),
            false => names.push(name),
        }
    }
    names.sort();
    names
}

/// The files of a repository that make a model.
#[derive(Debug, PartialEq, Eq)]
enum Chosen<'a> {
    /// A GGUF file, or all parts of one in order.
    Files(Vec<&'a str>),
    Folder(Vec<&'a str>),
}

/// The GGUF file of the quantisation, or the folder's files; the error says why there is neither.
fn choose<'a>(repository: &Repository, names: impl Iterator<Item = &'a str> + Clone) -> Result<Chosen<'a>, String> {
    let here: Vec<&str> = names.clone().filter(|name| !name.contains('/')).collect();
    let tensors = here.iter().any(|name| name.ends_with(".safetensors"));
    if repository.quant.is_none() && tensors && here.contains(&"config.json") {
        let wanted = |name: &&str| {
            BESIDE.contains(name) || name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")
        };
        return Ok(Chosen::Folder(here.into_iter().filter(wanted).collect()));
    }
    // A projector for images is no model.
    let files: Vec<&str> =
        names.filter(|name| name.ends_with(".gguf") && !name.to_lowercase().contains("mmproj")).collect();
    // A file in parts is known by its first.
    let models: Vec<&str> =
        files.iter().copied().filter(|name| part_of(name).is_none_or(|(_, part, _)| part == 1)).collect();
    let of = |quant: &str| models.iter().copied().filter(|name| quant_of(name).eq_ignore_ascii_case(quant)).collect();
    let listed = || models.iter().map(|name| quant_of(name)).collect::<Vec<_>>().join(", ");
    let found: Vec<&str> = match &repository.quant {
        Some(quant) => of(quant),
        None if models.len() == 1 => models.clone(),
        None => of(QUANT_DEFAULT),
    };
    match found[..] {
        [one] => {
            let Some((stem, _, parts)) = part_of(one) else { return Ok(Chosen::Files(vec![one])) };
            let mut all: Vec<&str> = files
                .into_iter()
                .filter(|name| part_of(name).is_some_and(|(of, _, count)| (of, count) == (stem, parts)))
                .collect();
            all.sort_unstable();
            match all.len() == parts {
                true => Ok(Chosen::Files(all)),
                false => Err(format!("{one} is one of {parts} parts, and there are {}", all.len())),
            }
        }
        [] if files.is_empty() => {
            Err("the repository has no GGUF file, and no safetensors beside a config.json".into())
        }
        [] => Err(format!(
            "the repository has no {}; name one of these after a colon: {}",
            repository.quant.as_deref().unwrap_or(QUANT_DEFAULT),
            listed()
        )),
        _ => Err(format!("{} models match, and one is wanted: {}", found.len(), found.join(", "))),
    }
}

/// What is before `-00001-of-00003.gguf` in a part's name, its number from 1, and how many parts there are.
fn part_of(name: &str) -> Option<(&str, usize, usize)> {
    let (rest, parts) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let number = |text: &str| text.parse().ok().filter(|_| text.len() == 5);
    Some((stem, number(part)?, number(parts)?))
}

/// `Q4_K_M` of `x-Q4_K_M.gguf`, `x.Q4_K_M.gguf` and `x-Q4_K_M-00001-of-00003.gguf`.
fn quant_of(name: &str) -> &str {
    let stem = part_of(name).map_or(name.strip_suffix(".gguf").unwrap_or(name), |(stem, ..)| stem);
    stem.rsplit(['-', '.', '/']).next().unwrap_or(stem)
}

/// The hub's answer for a revision.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
}

/// Fetches the files of the model that are missing here, at the commit that the hub's listing names.
pub fn fetch(
    repository: &Repository,
    endpoint: &Endpoint,
    cache: &HubCache,
    progress: &dyn Progress,
) -> Result<Found, FetchError> {
    let wrong = |reason: String| FetchError::Repository { name: repository.name.clone(), reason };
    let listing = listing(repository, endpoint, progress)?;
    let names = listing.siblings.iter().map(|file| file.rfilename.as_str());
    let chosen = choose(repository, names).map_err(&wrong)?;
    let plain = |name: &str| Path::new(name).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let folder = cache.folder(repository);
    let snapshot = folder.join("snapshots").join(&listing.sha);
    if !plain(&listing.sha) {
        return Err(wrong(format!("the hub names {:?} as the commit, which cannot be a commit", listing.sha)));
    }
    let made = |path: &Path| fs::create_dir_all(path).map_err(FetchError::io(path));
    [folder.join("blobs"), folder.join("refs"), snapshot.clone()].iter().try_for_each(|path| made(path))?;
    let _lock = lock(&folder.join(".vosti.lock"), progress)?;
    let wanted = match &chosen {
        Chosen::Files(names) | Chosen::Folder(names) => names.clone(),
    };
    let files = || listing.siblings.iter().filter(|file| wanted.contains(&file.rfilename.as_str()));
    room(&folder, files().map(|file| missing(file, &folder, &snapshot)).fold(0, u64::saturating_add), HUB_CACHE)?;
    for file in files() {
        if !plain(&file.rfilename) {
            return Err(wrong(format!(
                "the hub lists the file {:?}, whose path leads out of the folder",
                file.rfilename
            )));
        }
        bring(repository, endpoint, &listing.sha, file, &folder, &snapshot, progress)?;
    }
    let branch = folder.join("refs").join(&repository.revision);
    made(branch.parent().expect("a branch's file has a folder"))?;
    fs::write(&branch, &listing.sha).map_err(FetchError::io(&branch))?;
    let path = match chosen {
        Chosen::Files(names) => snapshot.join(names[0]),
        Chosen::Folder(_) => snapshot,
    };
    Ok(Found { path, commit: listing.sha })
}

fn listing(repository: &Repository, endpoint: &Endpoint, progress: &dyn Progress) -> Result<Listing, FetchError> {
    let Repository { name, revision, .. } = repository;
    let url = format!("{}/api/models/{name}/revision/{}?blobs=true", endpoint.url, revision.replace('/', "%2F"));
    let http = |reason: String| FetchError::Http { url: url.clone(), reason };
    match endpoint.get(&url, 0, progress)? {
        Ok(answer) => {
            let mut text = String::new();
            match answer.body.take(LISTING_BYTES_MAX).read_to_string(&mut text) {
                Err(_) if progress.cancelled() => return Err(FetchError::Interrupted),
                read => read.map_err(|error| http(error.to_string()))?,
            };
            serde_json::from_str(&text).map_err(|error| http(format!("the answer is not a list of files: {error}")))
        }
        Err(ureq::Error::StatusCode(401 | 403)) => Err(FetchError::Repository {
            name: name.clone(),
            reason: "the hub refuses access: accept the model's terms on its page if it has some, and set HF_TOKEN"
                .into(),
        }),
        Err(ureq::Error::StatusCode(404)) => Err(FetchError::Repository {
            name: name.clone(),
            reason: format!("the hub has no such model, or no revision {revision} of it"),
        }),
        Err(error) => Err(http(error.to_string())),
    }
}

/// Bytes of a file that are still to come.
fn missing(file: &Sibling, folder: &Path, snapshot: &Path) -> u64 {
    let bytes = file.size.unwrap_or(0);
    let length = |path: &Path| fs::metadata(path).map_or(0, |here| here.len());
    let identity = file.lfs.as_ref().map(|lfs| &lfs.sha256).or(file.blob_id.as_ref());
    let blob = identity.map(|identity| folder.join("blobs").join(identity));
    let partial = blob.as_ref().map_or(0, |blob| length(&blob.with_extension("incomplete")));
    match length(&snapshot.join(&file.rfilename)) == bytes || blob.is_some_and(|blob| length(&blob) == bytes) {
        true => 0,
        false => bytes.saturating_sub(partial),
    }
}

/// Fetches one file, if it is missing, and links it under its name in the snapshot.
fn bring(
    repository: &Repository,
    endpoint: &Endpoint,
    commit: &str,
    file: &Sibling,
    folder: &Path,
    snapshot: &Path,
    progress: &dyn Progress,
) -> Result<(), FetchError> {
    let (name, model) = (&file.rfilename, &repository.name);
    let wrong = |reason: &str| FetchError::Repository { name: model.clone(), reason: format!("{name}: {reason}") };
    let bytes = file.size.ok_or_else(|| wrong("the hub's listing has no size for it"))?;
    let identity = file.lfs.as_ref().map(|lfs| &lfs.sha256).or(file.blob_id.as_ref());
    let identity = identity.filter(|id| id.chars().all(|c| c.is_ascii_hexdigit()) && id.len() >= 40);
    let identity = identity.ok_or_else(|| wrong("the hub's listing has no hash for it"))?;
    let link = snapshot.join(name);
    if fs::metadata(&link).is_ok_and(|here| here.len() == bytes) {
        return Ok(());
    }
    let blob = folder.join("blobs").join(identity);
    if !fs::metadata(&blob).is_ok_and(|here| here.len() == bytes) {
        let partial = blob.with_extension("incomplete");
        progress.stage(&format!("fetching {name}"), bytes);
        let url = format!("{}/{model}/resolve/{commit}/{name}", endpoint.url);
        let found = match hub::download(&url, endpoint, bytes, &partial, progress) {
            Err(_) if progress.cancelled() => return Err(FetchError::Interrupted),
            found => found?,
        };
        let found = if file.lfs.is_some() { found } else { git_blob(&partial).map_err(FetchError::io(&partial))? };
        if found != *identity {
            let _ = fs::remove_file(&partial);
            return Err(FetchError::WrongHash { what: name.clone(), expected: identity.clone(), found });
        }
        fs::rename(&partial, &blob).map_err(FetchError::io(&blob))?;
    }
    let parent = link.parent().expect("a snapshot's file has a folder");
    fs::create_dir_all(parent).map_err(FetchError::io(parent))?;
    let up = "../".repeat(2 + Path::new(name).components().count() - 1);
    let _ = fs::remove_file(&link);
    point(Path::new(&format!("{up}blobs/{identity}")), &blob, &link).map_err(FetchError::io(&link))
}

/// The name in the snapshot is a link to the blob, as in Hugging Face's layout.
fn point(relative: &Path, _blob: &Path, link: &Path) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::symlink(relative, link);
    #[cfg(not(unix))]
    return fs::hard_link(_blob, link);
}

/// The SHA-1 by which git names a file's content: the hub lists no other hash for small files.
fn git_blob(path: &Path) -> io::Result<String> {
    use sha1::{Digest, Sha1};
    let content = fs::read(path)?;
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", content.len()));
    hash.update(&content);
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_repository_or_is_not() {
        let parsed = |text: &str| text.parse::<Repository>().ok().map(|r| (r.name, r.quant, r.revision));
        let of = |name: &str, quant: Option<&str>, revision: &str| {
            Some((name.to_string(), quant.map(str::to_string), revision.to_string()))
        };
        assert_eq!(parsed("org/repo"), of("org/repo", None, "main"));
        assert_eq!(parsed("org/repo:Q8_0"), of("org/repo", Some("Q8_0"), "main"));
        assert_eq!(parsed("org/repo:Q8_0@v1.0"), of("org/repo", Some("Q8_0"), "v1.0"));
        assert_eq!(parsed("org/repo@refs/pr/1"), of("org/repo", None, "refs/pr/1"));
        assert_eq!(parsed("org/repo:Q8_0@feature/x"), of("org/repo", Some("Q8_0"), "feature/x"));
        for no in ["a/b@x/", "a/b@/x", "a/b@x//y", "a/b@x/../../y", "a/b@x/.y"] {
            assert_eq!(parsed(no), None, "{no}");
        }
        for no in ["repo", "./x", "a/b/c", "a/b.gguf", "/a/b", "a/", "a/..", "a/b:", "a/b@", "a/b@../c", "a b/c"] {
            assert_eq!(parsed(no), None, "{no}");
        }
    }

    #[test]
    fn one_file_is_chosen_or_the_reason_names_what_there_is() {
        let chosen = |text: &str, names: &[&'static str]| {
            choose(&text.parse().unwrap(), names.iter().copied()).map(|chosen| match chosen {
                Chosen::Files(names) | Chosen::Folder(names) => names,
            })
        };
        let quants = ["README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf"];
        assert_eq!(chosen("o/r", &quants).unwrap(), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen("o/r:q8_0", &quants).unwrap(), ["m-Q8_0.gguf"]);
        let why = chosen("o/r:Q2_K", &quants).unwrap_err();
        assert!(why.contains("Q2_K") && why.contains("Q4_K_M, Q8_0"), "{why}");
        let folder = ["config.json", "model.safetensors", "tokenizer.json", "model.gguf", "onnx/model.onnx"];
        assert_eq!(chosen("o/r", &folder).unwrap(), ["config.json", "model.safetensors", "tokenizer.json"]);
        assert!(chosen("o/r", &["pytorch_model.bin", "config.json"]).unwrap_err().contains("no GGUF file"));
        let parts = ["m-Q4_K_M/m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M/m-Q4_K_M-00002-of-00002.gguf"];
        assert_eq!(chosen("o/r", &parts).unwrap(), parts);
        assert_eq!(chosen("o/r:q4_k_m", &[parts[1], "m-Q8_0.gguf", parts[0]]).unwrap(), parts);
        let why = chosen("o/r", &parts[..1]).unwrap_err();
        assert!(why.contains("one of 2 parts, and there are 1"), "{why}");
        assert!(chosen("o/r:Q2_K", &parts).unwrap_err().ends_with(": Q4_K_M"));
    }
}
