//! Says how much memory is available, and whether a model fits into it, before the model is read.
//!
//! A system that runs out of memory kills a process without a message, after minutes of reading. Nothing here chooses a size:
//! a model that does not fit is refused. Read next: `deployment.rs`.

use std::fs;
use std::path::Path;
use thiserror::Error;

/// The memory that this process may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes that it may still take.
    pub bytes: u64,
    /// The limit's name, with its verb: the machine or a control group.
    pub by: &'static str,
}

const MACHINE: &str = "this machine has";
const GROUP: &str = "this process's control group (a container's limit) leaves";

/// Memory and swap that are free or could be freed, or the part that the control groups leave; none where the system does not
/// say, as outside Linux.
pub fn available() -> Option<Available> {
    let root = Path::new("/");
    if cfg!(target_os = "linux") && free(root).is_none() {
        // The message is not an error: a container may hide the file and still have a limit of its own.
        tell!(
            "warning: /proc/meminfo cannot be read, so a model that does not fit into this machine's memory is not refused \
             (a systemd unit hides the file with ProcSubset=pid)"
        );
    }
    of(root)
}

/// Free memory and free swap of the machine, in bytes.
fn free(root: &Path) -> Option<(u64, u64)> {
    machine(&fs::read_to_string(root.join("proc/meminfo")).ok()?)
}

/// The same for a system whose files are below a folder.
fn of(root: &Path) -> Option<Available> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = free(root);
    let swap = machine.map_or(0, |(_, swap)| swap);
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let left = groups.lines().filter_map(|line| group(root, line, swap)).min();
    let free = machine.map(|(free, swap)| free.saturating_add(swap));
    match (left, free) {
        (Some(left), free) if free.is_none_or(|free| left < free) => Some(Available { bytes: left, by: GROUP }),
        (_, free) => free.map(|bytes| Available { bytes, by: MACHINE }),
    }
}

/// Bytes that `/proc/meminfo` says are available, and of free swap.
fn machine(text: &str) -> Option<(u64, u64)> {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
    };
    Some((of("MemAvailable")?, of("SwapFree").unwrap_or(0)))
}

/// Bytes that a line of `/proc/self/cgroup` leaves: the least of a group and those that it is in.
fn group(root: &Path, line: &str, swap: u64) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
    // Version 2 has one tree; version 1 one for each controller.
    let (tree, left): (_, fn(&Path, u64) -> Option<u64>) = match controllers {
        "" => ("sys/fs/cgroup", left_by_second),
        _ if controllers.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", left_by_first),
        _ => return None,
    };
    // In a container the path may be the host's, and the container's own group the root.
    let groups = Path::new(path).ancestors().filter(|path| !path.starts_with(".."));
    groups.filter_map(|path| left(&root.join(tree).join(path), swap)).min()
}

/// Bytes that one group of version 2 leaves. It limits memory and swap each for itself.
fn left_by_second(folder: &Path, swap: u64) -> Option<u64> {
    let freed = reclaimable(folder, &["inactive_file ", "active_file ", "slab_reclaimable "]);
    let memory = left(folder, "memory.max", "memory.current", freed)?;
    Some(memory.saturating_add(left(folder, "memory.swap.max", "memory.swap.current", 0).unwrap_or(swap).min(swap)))
}

/// Bytes that one group of version 1 leaves. It limits memory, and memory and swap together.
fn left_by_first(folder: &Path, swap: u64) -> Option<u64> {
    let freed = reclaimable(folder, &["total_inactive_file ", "total_active_file "]);
    let memory = left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", freed)?.saturating_add(swap);
    let both = left(folder, "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes", freed);
    Some(memory.min(both.unwrap_or(memory)))
}

/// Bytes of a limit that are not used, or are used and could be freed.
fn left(folder: &Path, limit: &str, usage: &str, freed: u64) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(number(limit)?.saturating_sub(number(usage)?.saturating_sub(freed)))
}

/// Bytes of a group that the system frees when it needs them: cached pages of files above all.
fn reclaimable(folder: &Path, names: &[&str]) -> u64 {
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let of = |name: &&str| stat.lines().find_map(|line| line.strip_prefix(*name)?.trim().parse::<u64>().ok());
    names.iter().filter_map(of).sum()
}

/// The memory that a model takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of the weights, in the form that they have in memory.
    pub weights: u64,
    /// Pages of keys and values.
    pub pages: usize,
    /// Bytes of all pages.
    pub pool: u64,
    /// Bytes of the row buffers, the step's array and scratch.
    pub buffers: u64,
    /// Bytes of the weights in their file's blocks, if `--weights expanded` was asked for.
    pub as_they_come: Option<u64>,
}

/// A model that does not fit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "the model takes {} of memory: weights {}, {} KV pages {}, buffers {}; {} {}: {}",
    told(self.taken.all()), told(self.taken.weights), self.taken.pages, told(self.taken.pool), told(self.taken.buffers),
    self.available.by, told(self.available.bytes), self.advice()
)]
pub struct DoesNotFit {
    /// What the model takes.
    pub taken: Taken,
    /// What there is.
    pub available: Available,
}

impl Taken {
    fn all(&self) -> u64 {
        self.weights.saturating_add(self.pool).saturating_add(self.buffers)
    }

    /// An error unless it fits into what is available.
    pub fn check(self, available: Option<Available>) -> Result<(), DoesNotFit> {
        match available {
            Some(available) if self.all() > available.bytes => Err(DoesNotFit { taken: self, available }),
            _ => Ok(()),
        }
    }
}

impl DoesNotFit {
    fn advice(&self) -> String {
        let (taken, bytes) = (&self.taken, self.available.bytes);
        let beside = taken.pool.saturating_add(taken.buffers);
        match taken.as_they_come {
            Some(weights) if weights.saturating_add(beside) <= bytes => {
                format!("give --weights as-they-come (weights {})", told(weights))
            }
            Some(weights) if weights.saturating_add(taken.buffers) <= bytes => format!(
                "give --weights as-they-come (weights {}) and a smaller --kv-pages, --kv-memory or --context",
                told(weights)
            ),
            _ if taken.weights.saturating_add(taken.buffers) <= bytes => {
                "give a smaller --kv-pages, --kv-memory or --context".into()
            }
            _ => "use a smaller model, or one with fewer bits per weight".into(),
        }
    }
}

/// Bytes, also in GiB.
fn told(bytes: u64) -> String {
    const GIB: f64 = (1u64 << 30) as f64;
    format!("{bytes} bytes ({:.2} GiB)", bytes as f64 / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system's files.
    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    1000 kB\nSwapTotal: 30 kB\nSwapFree:   24 kB\n");

    #[test]
    fn the_machines_memory_counts_unless_a_control_group_leaves_less() {
        let says = |files: &[(&str, &str)]| {
            let root = system(&[&[MEMINFO], files].concat());
            of(root.path()).map(|available| (available.bytes, available.by == GROUP))
        };
        assert_eq!(says(&[]), Some((1024 * 1024, false)));
        assert_eq!(of(system(&[]).path()), None);
        // Version 2: no limit of its own, one around it; cached pages of files are free.
        let second = [
            ("proc/self/cgroup", "0::/a.slice/b\n"),
            ("sys/fs/cgroup/a.slice/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a.slice/b/memory.current", "10\n"),
            ("sys/fs/cgroup/a.slice/memory.max", "5000\n"),
            ("sys/fs/cgroup/a.slice/memory.current", "3000\n"),
            ("sys/fs/cgroup/a.slice/memory.stat", "anon 9\ninactive_file 400\nactive_file 30\n"),
        ];
        // And all of the swap that the machine has free, unless the group has less.
        assert_eq!(says(&second), Some((2430 + 24 * 1024, true)));
        let swap =
            [("sys/fs/cgroup/a.slice/memory.swap.max", "90\n"), ("sys/fs/cgroup/a.slice/memory.swap.current", "20\n")];
        assert_eq!(says(&[&second[..], &swap].concat()), Some((2500, true)));
        // Version 1 in a container: the path is the host's, the limit the root's.
        let first = [
            ("proc/self/cgroup", "4:cpu:/x\n3:memory,hugetlb:/docker/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 7\ntotal_inactive_file 50\ntotal_active_file 5\n"),
        ];
        assert_eq!(says(&first), Some((600_055 + 24 * 1024, true)));
        // A limit counts where the machine's memory is hidden.
        let hidden = of(system(&first).path()).map(|available| (available.bytes, available.by == GROUP));
        assert_eq!(hidden, Some((600_055, true)));
        let both = [
            ("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "700100\n"),
            ("sys/fs/cgroup/memory/memory.memsw.usage_in_bytes", "100000\n"),
        ];
        assert_eq!(says(&[&first[..], &both].concat()), Some((600_155, true)));
        let none = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "9999999999\n")];
        assert_eq!(says(&none), Some((1024 * 1024, false)), "what it uses is not known");
    }

    #[test]
    fn what_does_not_fit_is_told_in_bytes_with_what_would() {
        const G: u64 = 1 << 30;
        let taken = Taken { weights: 16 * G, pages: 9, pool: 2 * G, buffers: G, as_they_come: Some(5 * G) };
        let says =
            |taken: Taken, bytes| taken.check(Some(Available { bytes, by: MACHINE })).map_err(|why| why.to_string());
        assert_eq!(taken.check(None), Ok(()));
        assert_eq!(says(taken, 19 * G), Ok(()));
        let why = says(taken, 19 * G - 1).unwrap_err();
        assert!(
            why.starts_with("the model takes 20401094656 bytes (19.00 GiB) of memory: weights 17179869184 bytes"),
            "{why}"
        );
        assert!(
            why.contains("9 KV pages 2147483648 bytes") && why.contains("this machine has 20401094655 bytes"),
            "{why}"
        );
        assert!(why.ends_with("give --weights as-they-come (weights 5368709120 bytes (5.00 GiB))"), "{why}");
        assert!(
            says(taken, 7 * G)
                .unwrap_err()
                .contains("as-they-come (weights 5368709120 bytes (5.00 GiB)) and a smaller --kv-pages")
        );
        assert!(says(taken, G).unwrap_err().ends_with("use a smaller model, or one with fewer bits per weight"));
        let kept = Taken { weights: 5 * G, as_they_come: None, ..taken };
        assert!(says(kept, 7 * G).unwrap_err().contains(": give a smaller --kv-pages, --kv-memory or --context"));
        assert!(says(Taken { pool: u64::MAX, ..kept }, 7 * G).is_err());
    }
}
