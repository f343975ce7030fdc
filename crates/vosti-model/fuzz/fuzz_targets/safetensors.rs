//! A model.safetensors of any bytes gives tensors inside the file, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_model::TensorFiles;

fuzz_target!(|data: &[u8]| {
    let folder = std::env::temp_dir().join(format!("vosti-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    std::fs::write(folder.join("model.safetensors"), data).expect("room for a temporary file");
    if let Ok(files) = TensorFiles::open_folder(&folder)
        && let Ok(tensor) = files.tensor("a")
    {
        assert_eq!(tensor.bytes.len(), tensor.shape.iter().product::<usize>() * tensor.kind.block_bytes());
    }
});
