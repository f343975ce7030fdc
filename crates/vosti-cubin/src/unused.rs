//! What a cache keeps goes when nobody has used it for long.
//!
//! Each thing that is kept is a folder with a file that is written last. The time of that file is the last use.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// How long a thing is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Notes that a thing is used now. In a cache that cannot be written to nothing is noted, and nothing is removed.
pub fn note(thing: &Path, last: &str) {
    let open = File::options().append(true).open(thing.join(last));
    _ = open.and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes every folder of a cache that nobody has used for long, also one that was never finished. Who calls this holds the lock
/// under which things are made. What cannot be removed stays, and is tried again the next time.
pub fn remove(cache: &Path, last: &str) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let (thing, is_folder) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let about = fs::metadata(thing.join(last)).or_else(|_| fs::metadata(&thing));
        let used = about.and_then(|about| about.modified());
        if is_folder && used.is_ok_and(|used| used.elapsed().is_ok_and(|since| since > KEPT)) {
            _ = fs::remove_dir_all(&thing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_used_for_a_month_goes_and_all_else_stays() {
        let cache = tempfile::tempdir().unwrap();
        let aged = |path: &Path, days: u64| {
            let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
            File::open(path).and_then(|file| file.set_modified(then)).unwrap();
        };
        let thing = |name: &str, days: u64, whole: bool| {
            let folder = cache.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cubin"), "code").unwrap();
            if whole {
                fs::write(folder.join("whole"), "hash").unwrap();
                aged(&folder.join("whole"), days);
            }
            aged(&folder, days);
            folder
        };
        thing("old", 31, true);
        thing("killed", 31, false);
        thing("new", 29, true);
        thing("being-made", 0, false);
        let used = thing("used", 31, true);
        fs::write(cache.path().join("kernels.lock"), "").unwrap();
        aged(&cache.path().join("kernels.lock"), 31);
        note(&used, "whole");
        note(&cache.path().join("killed"), "whole");
        remove(cache.path(), "whole");
        let mut left: Vec<_> = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["being-made", "kernels.lock", "new", "used"]);
        remove(&cache.path().join("nowhere"), "whole");
    }
}
