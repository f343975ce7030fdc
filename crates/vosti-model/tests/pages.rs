//! Pages of a model's file count as this process's memory only while their rows are being packed.

#![cfg(target_os = "linux")]

use std::os::unix::fs::FileExt;
use std::path::Path;
use vosti_model::{Target, TensorFiles, WeightSource, Weights, families, plan};

/// The number of pages of some bytes that count as this process's memory: bit 63 of an entry of the page map says that a page
/// is present (<https://docs.kernel.org/admin-guide/mm/pagemap.html>).
fn resident(bytes: &[u8]) -> usize {
    let page = std::process::Command::new("getconf").arg("PAGESIZE").output().unwrap().stdout;
    let page: usize = String::from_utf8(page).unwrap().trim().parse().unwrap();
    let pages = bytes.as_ptr() as usize / page..(bytes.as_ptr() as usize + bytes.len()).div_ceil(page);
    let mut entries = vec![0; 8 * pages.len()];
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    map.read_exact_at(&mut entries, 8 * pages.start as u64).unwrap();
    entries.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
}

#[test]
fn pages_of_a_weight_are_given_back_when_its_rows_were_read() {
    let tiny = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny/llama");
    let files = TensorFiles::open_folder(&tiny).unwrap();
    let config = serde_json::from_slice(&std::fs::read(tiny.join("config.json")).unwrap()).unwrap();
    let plan = plan(&families::from_config("config.json", &config).unwrap(), &Target::named("cpu"), None).unwrap();
    let weights = Weights::new(&files, &plan);
    let stored = files.tensor("embed_tokens.weight").unwrap().bytes;
    let sum: u64 = stored.iter().map(|byte| u64::from(*byte)).sum();
    assert!(sum > 0 && resident(stored) > 0, "what was read without a weight stays");
    let embed = weights.load("embed").unwrap();
    assert_eq!(resident(stored), 0);
    // And comes back.
    assert_eq!(weights.load("embed").unwrap(), embed);
}
