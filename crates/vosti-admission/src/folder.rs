//! A bundle as a folder: `manifest.json`, `ttir/`, `certificates/`, and for a GPU target `cubin/`, `launch/`.
//!
//! The folder is written under another name and then renamed, so half a bundle never exists. It is read as untrusted input:
//! every file must have the manifest's hash. [`Bundle::admit`] checks that its kernels are proved.

use crate::bundle::{Bundle, plan_hash};
use crate::error::BundleError;
use crate::manifest::{FORMAT, File, Format, Kernel, Manifest, Model};
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use vosti_core::PAGE;
use vosti_cubin::Cubin;
use vosti_kernels::{CPU, Spec, parse_stem, ttir_hash};
use vosti_model::ModelPlan;
use vosti_verify::Certificate;

const MANIFEST: &str = "manifest.json";

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> BundleError {
    let path = path.to_path_buf();
    |error| BundleError::Io { path, error }
}

impl Bundle {
    /// Reads a folder that [`Bundle::write`] wrote. [`BundleError::NoBundle`] if there is no manifest, [`BundleError::Foreign`] if
    /// another version wrote it; [`BundleError::Damaged`] if a file is missing, has another hash than the manifest says, or occurs
    /// twice.
    pub fn read(folder: &Path) -> Result<Bundle, BundleError> {
        let damaged = |why: String| BundleError::Damaged { folder: folder.display().to_string(), why };
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                BundleError::NoBundle { folder: folder.display().to_string(), file: MANIFEST }
            }
            _ => damaged(format!("{MANIFEST}: {error}")),
        })?;
        let unread = |error: serde_json::Error| damaged(format!("{MANIFEST}: {error}"));
        let Format { format } = serde_json::from_str(&text).map_err(unread)?;
        if format != FORMAT {
            let (folder, wanted) = (folder.display().to_string(), FORMAT.into());
            return Err(BundleError::Foreign { folder, what: "version of vosti", found: format, wanted });
        }
        let manifest: Manifest = serde_json::from_str(&text).map_err(unread)?;
        let mut bundle = Bundle {
            folder: Some(folder.to_path_buf()),
            manifest: None,
            certificates: Default::default(),
            texts: Default::default(),
            cubins: Default::default(),
        };
        for (i, kernel) in manifest.kernels.iter().enumerate() {
            let name = &kernel.specialisation;
            if manifest.kernels[..i].iter().any(|other| other.specialisation == *name) {
                return Err(damaged(format!("{MANIFEST} names {name} twice")));
            }
            let Some(spec) = parse_stem(name) else {
                return Err(damaged(format!("{name} is no specialisation that this binary knows")));
            };
            // Specialisations of several dimensions have one text and one certificate.
            let text_name = spec.text().to_string();
            let (mut cubin, mut launch) = (None, None);
            for (i, file) in kernel.files.iter().enumerate() {
                if kernel.files[..i].iter().any(|other| other.kind == file.kind) {
                    return Err(damaged(format!("{name} has two files of the kind `{}`", file.kind)));
                }
                let bytes = contents(folder, file).map_err(damaged)?;
                let text =
                    || String::from_utf8(bytes.clone()).map_err(|_| damaged(format!("{} is not text", file.path)));
                match file.kind.as_str() {
                    "ttir" => {
                        let read = text()?;
                        if bundle.texts.insert(text_name.clone(), read.clone()).is_some_and(|other| other != read) {
                            return Err(damaged(format!("{text_name} has two texts")));
                        }
                    }
                    "certificate" => {
                        let read = Certificate::from_json(&text_name, &text()?).map_err(|error| bundle.wrong(error))?;
                        let other = bundle.certificates.insert(text_name.clone(), read.clone());
                        if other.is_some_and(|other| other != read) {
                            return Err(damaged(format!("{text_name} has two certificates")));
                        }
                    }
                    "cubin" => cubin = Some(bytes),
                    "launch" => launch = Some(text()?),
                    other => return Err(damaged(format!("{} is a `{other}`, which nothing reads", file.path))),
                }
            }
            if bundle.texts.get(&text_name).map(|text| ttir_hash(text).to_hex().to_string()).as_ref()
                != Some(&kernel.ttir_hash)
            {
                return Err(damaged(format!("{name} has no TTIR of the hash that {MANIFEST} names")));
            }
            let Some(bound) = bundle.bound(&spec) else {
                return Err(damaged(format!("{name} has a text that does not take its dimensions")));
            };
            if let Some(cubin) = compiled(&spec, &bound, cubin, launch).map_err(damaged)? {
                bundle.cubins.insert(name.clone(), cubin);
            }
        }
        bundle.manifest = Some(manifest);
        Ok(bundle)
    }

    /// Refuses a bundle in a folder that was prepared for another target. Needs no model, so a caller asks this first.
    pub fn check_target(&self, target: &str) -> Result<(), BundleError> {
        match &self.manifest {
            Some(manifest) if manifest.target != target => Err(BundleError::Target {
                folder: self.origin(),
                found: manifest.target.clone(),
                wanted: target.into(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a bundle in a folder that was prepared by another version or for another model, target, context, page size,
    /// program or list of kernels.
    pub fn check_origin(&self, model: &Model, target: &str, plan: &ModelPlan) -> Result<(), BundleError> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let hash = plan_hash(plan);
        let named: BTreeSet<String> = manifest.kernels.iter().map(|kernel| kernel.specialisation.clone()).collect();
        let wanted: BTreeSet<String> = self.launched(plan).iter().map(Spec::to_string).collect();
        let first = |list: &BTreeSet<String>, other| list.difference(other).next().cloned().unwrap_or_default();
        let kernels = ("list of kernels", first(&named, &wanted), first(&wanted, &named));
        let pairs = [
            ("version of vosti", manifest.vosti.clone(), env!("CARGO_PKG_VERSION").to_string()),
            ("target", manifest.target.clone(), target.to_string()),
            ("model", manifest.model.clone(), model.hash.clone()),
            ("context", manifest.context.to_string(), plan.program.context.to_string()),
            ("page size", manifest.page.to_string(), PAGE.to_string()),
            ("program", manifest.program.clone(), hash),
            kernels,
        ];
        match pairs.into_iter().find(|(_, found, wanted)| found != wanted) {
            None => Ok(()),
            Some((what, found, wanted)) => {
                // Of a hash a few digits are shown, and all are compared.
                let hash = ["model", "program"].contains(&what);
                let [found, wanted] =
                    [found, wanted].map(|text| if hash { text.chars().take(16).collect() } else { text });
                Err(BundleError::Foreign { folder: self.origin(), what, found, wanted })
            }
        }
    }

    /// Refuses a folder that [`Bundle::write`] could not write, and changes nothing. What a bundle holds may take minutes to make, so
    /// a caller asks this first.
    pub fn check_writable(folder: &Path, force: bool) -> Result<(), BundleError> {
        replaceable(folder, force)?;
        let there = parent(folder).ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
        let tried = Scratch(there.join(format!(".vosti-{}", std::process::id())));
        fs::create_dir(&tried.0).map_err(io(folder))
    }

    /// Admits a plan, and writes the part of this bundle that it needs to `folder`. A bundle in its place is replaced only with
    /// `force`, anything else never. An error too if a kernel is not compiled for a GPU target.
    pub fn write(
        &self,
        folder: &Path,
        force: bool,
        model: Model,
        target: &str,
        plan: &ModelPlan,
    ) -> Result<Manifest, BundleError> {
        self.admit(plan)?;
        replaceable(folder, force)?;
        let parent = parent(folder);
        fs::create_dir_all(parent).map_err(io(parent))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let beside = |what: &str| parent.join(format!(".{name}.{what}-{}", std::process::id()));
        let fresh = Scratch(beside("new"));
        let manifest = self.fill(&fresh.0, model, target, plan)?;
        put_in_place(&fresh.0, &Scratch(beside("old")).0, folder, force)?;
        Ok(manifest)
    }

    /// The plan's specialisations that ops launch: `admit` has checked that those have a text and a certificate.
    fn launched(&self, plan: &ModelPlan) -> Vec<Spec> {
        let specs = vosti_model::plan::specs(plan).into_iter();
        let here = |of: String| self.ttir(&of).is_some() && self.certificates.contains_key(&of);
        specs.filter(|spec| here(spec.text().to_string())).collect()
    }

    fn fill(&self, folder: &Path, model: Model, target: &str, plan: &ModelPlan) -> Result<Manifest, BundleError> {
        let mut kernels = vec![];
        for spec in self.launched(plan) {
            let kernel = spec.to_string();
            let of = spec.text().to_string();
            let (Some(text), Some(certificate)) = (self.ttir(&of), self.certificates.get(&of)) else { continue };
            let mut files = vec![
                put(folder, "ttir", format!("ttir/{of}.ttir"), text.as_bytes())?,
                put(folder, "certificate", format!("certificates/{of}.json"), certificate.to_json().as_bytes())?,
            ];
            match self.cubins.get(&kernel) {
                Some(cubin) => files.extend([
                    put(folder, "cubin", format!("cubin/{kernel}.cubin"), &cubin.code)?,
                    put(folder, "launch", format!("launch/{kernel}.json"), cubin.record_json().as_bytes())?,
                ]),
                None if target == CPU => {}
                None => return Err(BundleError::Uncompiled { kernel, target: target.into() }),
            }
            kernels.push(Kernel { ttir_hash: ttir_hash(text).to_hex().to_string(), specialisation: kernel, files });
        }
        let manifest = Manifest {
            format: FORMAT.into(),
            vosti: env!("CARGO_PKG_VERSION").into(),
            target: target.into(),
            model: model.hash,
            context: plan.program.context,
            page: PAGE,
            program: plan_hash(plan),
            kernels,
        };
        let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
        put(folder, "manifest", MANIFEST.into(), text.as_bytes())?;
        Ok(manifest)
    }
}

fn parent(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Renames a bundle that was written beside its place. An empty folder there is replaced. A bundle is moved to `old` first, with
/// `force` alone: what another process has written meanwhile stays.
fn put_in_place(fresh: &Path, old: &Path, folder: &Path, force: bool) -> Result<(), BundleError> {
    if force && folder.exists() {
        fs::rename(folder, old).map_err(io(folder))?;
    }
    fs::rename(fresh, folder).map_err(|error| {
        _ = fs::rename(old, folder);
        replaceable(folder, false).err().unwrap_or_else(|| io(folder)(error))
    })
}

/// A folder that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

fn put(folder: &Path, kind: &str, path: String, bytes: &[u8]) -> Result<File, BundleError> {
    let to = folder.join(&path);
    let parent = to.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(io(parent))?;
    fs::write(&to, bytes).map_err(io(&to))?;
    Ok(File { kind: kind.into(), path, blake3: blake3::hash(bytes).to_hex().to_string() })
}

/// The compiled kernel; None if there are neither machine code nor launch record, an error if there is one of the two.
fn compiled(spec: &Spec, ttir: &str, code: Option<Vec<u8>>, launch: Option<String>) -> Result<Option<Cubin>, String> {
    match (code, launch) {
        (None, None) => Ok(None),
        (Some(code), Some(launch)) => {
            Cubin::read(spec, ttir, &launch, code).map(Some).map_err(|error| error.to_string())
        }
        _ => Err(format!("{spec} has not both machine code and the record of how to launch it")),
    }
}

fn contents(folder: &Path, file: &File) -> Result<Vec<u8>, String> {
    let path = Path::new(&file.path);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("{} is not a path inside it", file.path));
    }
    let bytes = fs::read(folder.join(path)).map_err(|error| format!("{}: {error}", file.path))?;
    match blake3::hash(&bytes).to_hex().as_str() == file.blake3 {
        true => Ok(bytes),
        false => Err(format!("{} is not the file that {MANIFEST} names (its hash differs)", file.path)),
    }
}

/// Refuses to replace a folder that has files, unless it is a bundle and `force` is given.
fn replaceable(folder: &Path, force: bool) -> Result<(), BundleError> {
    let path = folder.to_path_buf();
    if folder.file_name().is_none() {
        return Err(BundleError::Unnamed { path });
    }
    if !folder.exists() {
        return Ok(());
    }
    let empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    match (folder.join(MANIFEST).is_file(), empty, force) {
        (_, true, _) | (true, _, true) => Ok(()),
        (true, _, false) => Err(BundleError::Exists { path }),
        (false, _, _) => Err(BundleError::NotABundle { path }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_another_process_wrote_meanwhile_stays_unless_it_may_be_replaced() {
        let place = tempfile::tempdir().unwrap();
        let inside = |name: &str| place.path().join(name);
        let written = |name: &str| {
            fs::create_dir(inside(name)).unwrap();
            fs::write(inside(name).join(MANIFEST), name).unwrap();
        };
        let put = |force| put_in_place(&inside("new"), &inside("old"), &inside("bundle"), force);
        let there = || fs::read_to_string(inside("bundle").join(MANIFEST)).unwrap();
        written("new");
        fs::create_dir(inside("bundle")).unwrap();
        put(false).unwrap();
        assert_eq!((there().as_str(), inside("old").exists()), ("new", false), "an empty folder is replaced");
        fs::write(inside("bundle").join(MANIFEST), "another's").unwrap();
        written("new");
        assert!(matches!(put(false), Err(BundleError::Exists { .. })));
        assert_eq!((there().as_str(), inside("new").exists()), ("another's", true));
        put(true).unwrap();
        assert_eq!((there().as_str(), inside("old").exists()), ("new", true));
    }
}
