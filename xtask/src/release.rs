//! `cargo xtask release`: the files of a release for this machine's processor: an archive with the `vosti` command, its SHA-256, and
//! the Python wheel. `.github/workflows/release.yml` runs it on each kind of machine, `deploy/install.sh` and the Dockerfile take
//! what it leaves. It publishes nothing.

use crate::{root, run_command, target_folder, wheel};
use anyhow::{Context, Result, ensure};
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the files are, under the target folder. `.dockerignore` names it too.
const FOLDER: &str = "release-files";
/// Oldest glibc that the command runs with; zig links for it.
const GLIBC: &str = "2.28";
/// Links for an old glibc; cargo calls it.
const ZIGBUILD: &str = "cargo-zigbuild==0.24.1";
/// Beside the command in its archive.
const BESIDE: [&str; 4] = ["README.md", "LICENSE-APACHE", "LICENSE-MIT", "deploy/vosti.service"];

/// Builds everything, and prints where it is.
pub fn run() -> Result<()> {
    let folder = target_folder().join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let target = target()?;
    let binary = binary(&target)?;
    let archive = pack(&binary, &target, &folder)?;
    println!("{}", archive.display());
    let wheel = if OS == "linux" { wheel::manylinux()? } else { wheel::own()? };
    let name = wheel.file_name().context("a wheel has a name")?;
    fs::copy(&wheel, folder.join(name)).with_context(|| wheel.display().to_string())?;
    println!("{}", folder.join(name).display());
    Ok(())
}

/// This machine's target, as archives, `cargo binstall` and the installer name it.
fn target() -> Result<String> {
    let system = match OS {
        "linux" => "unknown-linux-gnu",
        "macos" => "apple-darwin",
        other => anyhow::bail!("there is no release for {other}"),
    };
    Ok(format!("{ARCH}-{system}"))
}

/// The command, built for users.
fn binary(target: &str) -> Result<PathBuf> {
    let package = ["--release", "--locked", "--package", "vosti", "--bin", "vosti"];
    if OS != "linux" {
        run_command(Command::new(env!("CARGO")).arg("build").args(package).args(["--target", target]))?;
    } else {
        let python = wheel::environment("zig-python", &[wheel::LINKER.as_ref(), ZIGBUILD.as_ref()])?;
        let zigbuild = python.with_file_name("cargo-zigbuild");
        let mut build = Command::new(zigbuild);
        build.arg("zigbuild").args(package).args(["--target", &format!("{target}.{GLIBC}")]);
        run_command(build.env("CARGO_ZIGBUILD_PYTHON_PATH", &python))?;
    }
    Ok(target_folder().join(target).join("release/vosti"))
}

/// `vosti-TARGET.tar.gz`, which holds one folder of that name, and its SHA-256 beside it in the form of `sha256sum`.
fn pack(binary: &Path, target: &str, folder: &Path) -> Result<PathBuf> {
    let name = format!("vosti-{target}");
    let inside = folder.join(&name);
    fs::create_dir_all(&inside)?;
    fs::copy(binary, inside.join("vosti")).with_context(|| binary.display().to_string())?;
    for file in BESIDE {
        let from = root().join(file);
        let to = inside.join(from.file_name().context("a file has a name")?);
        fs::copy(&from, to).with_context(|| file.to_string())?;
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // On macOS tar would add a file of attributes beside each.
    run_command(tar.env("COPYFILE_DISABLE", "1").arg("-czf").arg(&archive).arg("-C").arg(folder).arg(&name))?;
    fs::remove_dir_all(&inside)?;
    let sum = if OS == "macos" { vec!["shasum", "-a", "256"] } else { vec!["sha256sum"] };
    let told = Command::new(sum[0]).args(&sum[1..]).arg(format!("{name}.tar.gz")).current_dir(folder).output()?;
    ensure!(told.status.success(), "{} failed", sum[0]);
    fs::write(folder.join(format!("{name}.tar.gz.sha256")), told.stdout)?;
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the release makes, the installer installs; a changed archive it refuses, and installs nothing.
    #[test]
    fn the_installer_takes_the_archive_and_refuses_another() {
        let place = target_folder().join(format!("installer-test-{}", std::process::id()));
        let (download, home) = (place.join("latest/download"), place.join("home"));
        fs::create_dir_all(&download).unwrap();
        let stub = place.join("stub");
        fs::write(&stub, "#!/bin/sh\necho vosti 9.9.9\n").unwrap();
        run_command(Command::new("chmod").arg("+x").arg(&stub)).unwrap();
        let archive = pack(&stub, &target().unwrap(), &download).unwrap();
        let install = || {
            let mut installer = Command::new("sh");
            installer.arg(root().join("deploy/install.sh")).env("HOME", &home);
            installer.env("VOSTI_RELEASES", format!("file://{}", place.display())).output().unwrap()
        };
        let done = install();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let installed = home.join(".local/bin/vosti");
        let said = Command::new(&installed).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), "vosti 9.9.9\n");

        fs::remove_file(&installed).unwrap();
        fs::write(&archive, "changed on its way").unwrap();
        let refused = install();
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("SHA-256") && error.lines().count() == 1, "{error}");
        assert!(!installed.exists());
        fs::remove_dir_all(&place).unwrap();
    }

    /// `.dockerignore`, the Dockerfile and the installer name the files as they are made.
    #[test]
    fn everyone_names_the_files_alike() {
        let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
        let folder = format!("target/{FOLDER}");
        assert!(read(".dockerignore").lines().any(|line| line == format!("!{folder}")));
        assert!(read("Dockerfile").contains(&format!("{folder}/vosti-")));
        assert!(read(".github/workflows/release.yml").contains(&format!("{folder}/*")));
        let template = "vosti-{ target }.tar.gz";
        assert!(read("crates/vosti/Cargo.toml").contains(template));
        assert!(read("deploy/install.sh").contains("vosti-$target.tar.gz"));
    }
}
