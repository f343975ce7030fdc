//! The peak memory of a process, as Linux reports it.

use anyhow::{Result, ensure};
use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Peak memory, in bytes.
#[derive(Default)]
pub struct Peak {
    /// Memory that no file backs.
    pub anonymous: u64,
    /// Resident memory, pages of mapped files included.
    pub resident: u64,
}

/// Runs a command to its end and reads its memory every ten milliseconds. An error if the command fails, or without /proc.
pub fn peak(command: &mut Command) -> Result<Peak> {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut peak = Peak::default();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) << 10
        };
        peak.anonymous = peak.anonymous.max(bytes("RssAnon"));
        peak.resident = peak.resident.max(bytes("VmRSS"));
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "{command:?} failed");
            ensure!(peak.anonymous > 0, "memory is measured on Linux, through /proc");
            return Ok(peak);
        }
        sleep(Duration::from_millis(10));
    }
}
