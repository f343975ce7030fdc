//! Compiled kernels that are kept between runs, so that a kernel is compiled once on a machine.
//!
//! What is kept is the compiler's output. It is inspected again each time, like fresh output. Its name is a hash of everything that
//! the compiler is given: the text, the options, the target and the script, which wants one version of Triton.

use crate::artifact::Artifact;
use crate::error::CubinError;
use crate::toolchain::{Copies, Kernel, Request, Toolchain, checked_in, lock};
use crate::unused;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use vosti_kernels::Spec;

/// The file beside a kernel's own that has their hash: a disk may lose the end of a file.
const WHOLE: &str = "whole";

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    copies: Copies,
}

impl Kept {
    /// The kernels in a folder, which is made when it is first needed.
    pub fn at(folder: PathBuf) -> Kept {
        Kept { folder, copies: Copies::default() }
    }

    /// The same, of kernels whose high products' tiles are copied in this way.
    pub fn copying(self, copies: Copies) -> Kept {
        Kept { copies, ..self }
    }

    /// Every specialisation, compiled for a target from its checked-in TTIR or kept. `tool` is asked for a compiler if some are
    /// missing, and gets their number. Errors: those of `tool`, of the compiler, or of the folder.
    pub fn compiled<E: From<CubinError>>(
        &self,
        target: &str,
        specs: &[Spec],
        tool: impl FnOnce(usize) -> Result<Toolchain, E>,
    ) -> Result<Vec<Artifact>, E> {
        let texts = checked_in(specs)?;
        let kernels: Vec<(Spec, &str)> = texts.iter().map(|(spec, text)| (spec.clone(), text.as_ref())).collect();
        let request = Request::of(target, self.copies, &kernels)?;
        let folders: Vec<PathBuf> =
            request.kernels.iter().map(|kernel| self.folder.join(request.name_of(kernel))).collect();
        let places = || request.kernels.iter().zip(&folders).zip(&kernels);
        let missing = || -> Vec<(&Kernel<'_>, &PathBuf)> {
            let missing = places().filter(|((_, folder), (spec, text))| read(folder, spec, text).is_none());
            missing.map(|(place, _)| place).collect()
        };
        // Before anything that is unused is removed.
        folders.iter().for_each(|folder| unused::note(folder, WHOLE));
        if !missing().is_empty() {
            // Another process may be at the same work: then this one waits, and finds it done.
            let _one = lock(&self.folder)?;
            let missing = missing();
            if !missing.is_empty() {
                self.keep(&tool(missing.len())?, &request, &missing)?;
                unused::remove(&self.folder, WHOLE);
            }
        }
        let lost = |folder: &Path| CubinError::Cache { path: folder.into(), error: io::ErrorKind::NotFound.into() };
        places().map(|((_, folder), (spec, text))| Ok(read(folder, spec, text).ok_or_else(|| lost(folder))?)).collect()
    }

    /// Compiles what is missing. Each kernel's files are written elsewhere and get their place at once.
    fn keep(
        &self,
        tool: &Toolchain,
        request: &Request<'_>,
        missing: &[(&Kernel<'_>, &PathBuf)],
    ) -> Result<(), CubinError> {
        let failed = |error| CubinError::Cache { path: self.folder.clone(), error };
        fs::create_dir_all(&self.folder).map_err(failed)?;
        let scratch = tempfile::tempdir_in(&self.folder).map_err(failed)?;
        let kernels = missing.iter().map(|(kernel, _)| (*kernel).clone()).collect();
        tool.compile_into(scratch.path(), &request.with(kernels))?;
        for (at, (kernel, folder)) in missing.iter().enumerate() {
            let own = scratch.path().join(at.to_string());
            fs::create_dir(&own).map_err(failed)?;
            for kind in Artifact::KINDS {
                let file = format!("{}.{kind}", kernel.stem);
                fs::rename(scratch.path().join(&file), own.join(&file)).map_err(failed)?;
            }
            fs::write(own.join(WHOLE), hash(&own, &kernel.stem).map_err(failed)?).map_err(failed)?;
            if folder.exists() {
                // It is damaged, or no folder.
                fs::remove_dir_all(folder).or_else(|_| fs::remove_file(folder)).map_err(failed)?;
            }
            fs::rename(&own, folder).map_err(failed)?;
        }
        Ok(())
    }
}

/// A kept kernel; none if it is not there or not whole.
fn read(folder: &Path, spec: &Spec, ttir: &str) -> Option<Artifact> {
    let whole = fs::read_to_string(folder.join(WHOLE)).ok()?;
    (hash(folder, &spec.to_string()).ok()? == whole).then(|| Artifact::read(folder, spec, ttir).ok())?
}

fn hash(folder: &Path, stem: &str) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for kind in Artifact::KINDS {
        let bytes = fs::read(folder.join(format!("{stem}.{kind}")))?;
        hasher.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"name": "k", "shared": 0, "num_warps": 4, "num_ctas": 1, "num_stages": 1, "global_scratch_size": 0,
        "global_scratch_align": 1, "profile_scratch_size": 0, "profile_scratch_align": 1, "launch_pdl": false,
        "launch_cooperative_grid": false, "enable_fp_fusion": false, "ptxas_level": 3, "target": "sm_90a", "triton": "3.6.0"}"#;

    /// A program in the place of Python: it writes the files of each kernel that it is asked for, and a line into `asked`.
    fn compiler(place: &Path) -> Toolchain {
        let text = format!(
            "cat > {0}/request\nfor stem in $(grep -o '\"stem\":\"[^\"]*' {0}/request | cut -d'\"' -f4); do\n\
             echo \"$stem\" >> {0}/asked\nfor kind in ttgir ptx cubin sass log; do echo \"$kind of $stem\" > \"$4/$stem.$kind\"; done\n\
             cat > \"$4/$stem.json\" << 'END'\n{METADATA}\nEND\ndone",
            place.display()
        );
        let python = place.join("python");
        vosti_test_tools::script(&python, &text);
        Toolchain::with_python(python)
    }

    #[test]
    fn a_kernel_is_compiled_once_and_again_if_what_is_kept_is_damaged() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::at(place.path().join("kernels"));
        let specs = ["linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1", "linear-bf16-BK64-BM128-BN128-K576-N960-SWAP1"];
        let specs = specs.map(|stem| vosti_kernels::parse_stem(stem).unwrap());
        let asked = || fs::read_to_string(place.path().join("asked")).unwrap_or_default().lines().count();
        let compiled = |specs: &[Spec], target: &str| {
            let tool = |_| Ok::<_, CubinError>(compiler(place.path()));
            let artifacts = kept.compiled(target, specs, tool).unwrap();
            for (spec, artifact) in specs.iter().zip(&artifacts) {
                assert_eq!(artifact.spec, *spec);
                assert_eq!(artifact.cubin, format!("cubin of {spec}\n").as_bytes());
            }
            asked()
        };
        assert_eq!(compiled(&specs[..1], "cuda-sm90"), 1);
        assert_eq!(compiled(&specs, "cuda-sm90"), 2, "the other one alone");
        assert_eq!(compiled(&specs, "cuda-sm90"), 2);
        assert_eq!(compiled(&specs[..1], "cuda-sm100"), 3, "another target is another kernel");

        let folders = || fs::read_dir(place.path().join("kernels")).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(folders().count(), 3, "nothing else is left");
        let cubin = |folder: &PathBuf| folder.join(format!("{}.cubin", specs[1]));
        let whole = folders().map(|folder| cubin(&folder)).find(|file| file.exists()).unwrap();
        fs::write(&whole, "cubin of").unwrap();
        assert_eq!(compiled(&specs, "cuda-sm90"), 4, "a file that has lost its end");
        fs::remove_file(&whole).unwrap();
        assert_eq!(compiled(&specs, "cuda-sm90"), 5, "a file that is gone");
    }

    #[test]
    fn what_a_start_uses_stays_and_what_none_has_used_for_long_goes_when_something_is_compiled() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::at(place.path().join("kernels"));
        let specs = ["K576-N960", "K576-N1536", "K1536-N576"].map(|dimensions| {
            vosti_kernels::parse_stem(&format!("linear-bf16-BK64-BM64-BN64-{dimensions}-SWAP1")).unwrap()
        });
        let compiled = |specs: &[Spec]| {
            kept.compiled("cuda-sm90", specs, |_| Ok::<_, CubinError>(compiler(place.path()))).unwrap();
            let folders = fs::read_dir(place.path().join("kernels")).unwrap();
            folders.map(|folder| folder.unwrap().path()).collect::<Vec<_>>()
        };
        let year = std::time::Duration::from_secs(365 * 24 * 60 * 60);
        for folder in compiled(&specs[..2]) {
            let whole = fs::File::options().append(true).open(folder.join(WHOLE)).unwrap();
            whole.set_modified(std::time::SystemTime::now() - year).unwrap();
        }
        let left = compiled(&[specs[0].clone(), specs[2].clone()]);
        let is_there = |spec: &Spec| left.iter().any(|folder| folder.join(format!("{spec}.cubin")).exists());
        assert_eq!(specs.each_ref().map(is_there), [true, false, true]);
        assert_eq!(left.len(), 2);
    }

    #[test]
    fn what_stands_in_the_way_is_replaced_or_named() {
        let place = tempfile::tempdir().unwrap();
        let spec = vosti_kernels::parse_stem("linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1").unwrap();
        let compiled = |folder: PathBuf| {
            Kept::at(folder)
                .compiled("cuda-sm90", std::slice::from_ref(&spec), |_| Ok::<_, CubinError>(compiler(place.path())))
        };
        let folder = place.path().join("kernels");
        compiled(folder.clone()).unwrap();
        let kernel = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        fs::remove_dir_all(&kernel).unwrap();
        fs::write(&kernel, "a file in the place of a folder").unwrap();
        compiled(folder).unwrap();
        assert!(kernel.is_dir());

        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        for place in [file.clone(), file.join("kernels")] {
            let error = compiled(place).unwrap_err().to_string();
            assert!(error.starts_with(&file.display().to_string()) && error.contains("set XDG_CACHE_HOME"), "{error}");
        }
    }

    #[test]
    fn what_failed_is_not_kept() {
        let place = tempfile::tempdir().unwrap();
        let kept = Kept::at(place.path().join("kernels"));
        let spec = vosti_kernels::parse_stem("linear-bf16-BK64-BM64-BN64-K576-N960-SWAP1").unwrap();
        let by = |python: &str| {
            kept.compiled("cuda-sm90", std::slice::from_ref(&spec), |_| Ok(Toolchain::with_python(python.into())))
        };
        for broken in ["/bin/false", "/bin/true"] {
            let error: CubinError = by(broken).unwrap_err();
            assert!(error.to_string().starts_with(broken), "{error}");
            assert_eq!(fs::read_dir(place.path().join("kernels")).unwrap().count(), 0);
        }
    }
}
