//! Wrong input ends with one line that says what is wrong on stderr, nothing on stdout, exit code 2, and no panic.

use std::path::Path;
use std::process::Command;

fn refused(arguments: &[&str], says: &str) {
    let result = Command::new(env!("CARGO_BIN_EXE_vosti")).args(arguments).output().expect("the binary starts");
    let (out, error) = (String::from_utf8_lossy(&result.stdout), String::from_utf8_lossy(&result.stderr));
    assert_eq!(result.status.code(), Some(2), "vosti {arguments:?}: {error}");
    assert_eq!(out, "", "vosti {arguments:?}: {error}");
    assert!(error.starts_with("vosti: ") && error.lines().count() == 1, "vosti {arguments:?}: {error}");
    assert!(error.contains(says), "{says:?} is not in {error:?}");
}

#[test]
fn a_model_that_is_not_there() {
    refused(&["generate", "x", "--model", "/nowhere/model.gguf"], "/nowhere/model.gguf");
    refused(&["generate", "x", "--model", "no-such-model"], "no-such-model");
}

#[test]
fn a_file_that_is_no_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        ("empty.gguf", &b""[..], "empty.gguf is damaged: it is empty"),
        ("text.gguf", b"hello, world", "text.gguf is not a GGUF file"),
        ("cut.gguf", b"GGUF\x03\0\0\0", "cut.gguf is damaged"),
        ("next.gguf", b"GGUF\x09\0\0\0", "unsupported GGUF version 9: only versions 2 and 3 can be read"),
    ];
    for (name, bytes, says) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("written");
        refused(&["generate", "x", "--model", path.to_str().expect("a path")], says);
    }
}

/// A whole model of a few kilobytes: a tiny Llama of 512 positions and a tokenizer that knows two letters.
fn tiny(folder: &Path) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/tiny/llama");
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(from.join(name), folder.join(name)).expect("copied");
    }
    let tokenizer = r#"{"version": "1.0", "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": false}, "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}}"#;
    std::fs::write(folder.join("tokenizer.json"), tokenizer).expect("written");
    folder.to_str().expect("a path").into()
}

#[test]
fn a_file_that_ends_early() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/text/tiny-gemma4.gguf");
    let bytes = std::fs::read(whole).expect("read");
    let path = folder.path().join("half.gguf");
    std::fs::write(&path, &bytes[..bytes.len() / 2]).expect("written");
    refused(&["generate", "a", "--model", path.to_str().expect("a path")], "half.gguf is damaged");

    let model = tiny(folder.path());
    let tensors = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&tensors).expect("read");
    std::fs::write(&tensors, &bytes[..bytes.len() - 1]).expect("written");
    refused(&["generate", "a", "--model", &model], "model.safetensors");
}

#[test]
fn a_folder_that_lacks_something() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    std::fs::remove_file(folder.path().join("tokenizer.json")).expect("removed");
    refused(&["generate", "a", "--model", &model], "tokenizer.json: No such file");
    std::fs::remove_file(folder.path().join("config.json")).expect("removed");
    refused(&["generate", "a", "--model", &model], "it has no config.json");
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "mamba"}"#).expect("written");
    refused(&["generate", "a", "--model", &model], "unsupported architecture `mamba`");
}

#[test]
fn a_prompt_that_is_too_long_or_empty() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    let generate = |prompt: &str, more: &[&str], says: &str| {
        refused(&[&["generate", prompt, "--model", &model, "--temperature", "0"], more].concat(), says)
    };
    generate(&"a".repeat(600), &[], "600 tokens and the model's context is 512");
    generate(&"a".repeat(100), &["--kv-pages", "1"], "the KV pool holds at most 65 of one sequence");
    generate(&"a".repeat(100), &["--context", "64"], "the model's context is 64");
    generate("", &[], "the prompt is empty");
    generate("a", &["--logit-bias", "256=1"], "the vocabulary ends at 255");
    generate("a", &["--stop-token", "256"], "--stop-token names token 256, but the vocabulary ends at 255");
    generate("a", &["--top-p", "2"], "top_p is 2");
    generate("a", &["--context", "513"], "--context 513 is longer than the model's own, 512 tokens");
    generate("a", &["--kv-pages", "9999999999999"], "9999999999999 KV pages 245759999999975424 bytes");
    generate("a", &["--kv-pages", &usize::MAX.to_string()], "--kv-pages, --kv-memory or --context");
    let template = r#"{"chat_template": "ab{% for m in messages %}{{ m.content }}{% endfor %}"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), template).expect("written");
    generate(" \n", &[], "the prompt is empty");
}

/// The model needs more memory than any machine has: each of its thousand layers is as large as a model.
#[test]
#[cfg(target_os = "linux")]
fn a_model_that_does_not_fit_is_told_in_bytes_before_anything_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("huge.json");
    let text = r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 65536, "intermediate_size": 262144,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_hidden_layers": 1000, "num_attention_heads": 512,
        "num_key_value_heads": 512, "head_dim": 128, "rope_theta": 1e4, "tie_word_embeddings": false}"#;
    std::fs::write(&config, text).expect("written");
    let check = ["check", "--model", config.to_str().expect("a path")];
    refused(&check, "bytes (");
    refused(&check, "GiB): use a smaller model, or one with fewer bits per weight");
}

#[test]
fn a_server_whose_pool_does_not_hold_its_context() {
    let folder = tempfile::tempdir().expect("a folder");
    let serve = ["serve", "--port", "0", "--kv-pages", "3", "--model", &tiny(folder.path())];
    let result = Command::new(env!("CARGO_BIN_EXE_vosti")).args(serve).output().expect("the binary starts");
    let error = String::from_utf8_lossy(&result.stderr);
    assert_eq!(result.status.code(), Some(2), "{error}");
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("listening "), "{error}");
    let says = "vosti: the context is 512 tokens, and the KV pool holds 193 of one sequence (3 KV pages, 1 MiB): \
                give --kv-pages 8 or --kv-memory 1M, or give --context 193 or less";
    assert_eq!(lines[1], says);
}

#[test]
fn a_chat_template_that_takes_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    let doubled = "{% set ns.s = ns.s ~ ns.s %}".repeat(20);
    let template = format!("{{% set ns = namespace(s='0123456789' * 100) %}}{doubled}ab");
    let config = serde_json::json!({ "chat_template": template }).to_string();
    std::fs::write(folder.path().join("tokenizer_config.json"), config).expect("written");
    let says = "chat template: it takes more than 256 MB of memory, which is the limit: use another file of the model";
    refused(&["generate", "--quiet", "ab", "-n", "1", "--model", &model], says);
}

#[test]
fn a_check_that_has_nothing_left_to_compare() {
    let folder = tempfile::tempdir().expect("a folder");
    refused(&["check", "--max-prompt", "0", "--model", &tiny(folder.path())], "raise --max-prompt");
}

#[test]
fn a_report_that_could_not_be_written_in_the_end() {
    // The model does not exist either: the error shows that the path of the report is checked first.
    for flag in ["--json", "--html"] {
        let check = ["check", "--model", "/nowhere/model.gguf", flag];
        refused(&[&check[..], &["/nowhere/report"]].concat(), "cannot write /nowhere/report");
        refused(&[&check[..], &["/"]].concat(), "it is a folder");
    }
    for flags in [["--html", "x.html"], ["--only", "batch"], ["--max-prompt", "99"], ["--profile", "quick"]] {
        refused(&[&["check", "--self-test"], &flags[..]].concat(), "cannot be used with");
    }
}

#[test]
fn flags_that_make_no_sense() {
    refused(&["generate", "x", "--kv-memory", "lots"], "512M");
    refused(&["generate", "x", "--no-such-flag"], "--no-such-flag");
    refused(&["generate", "x", "--context", "0"], "0 is not in 16..");
    refused(&["generate", "x", "-n", "0"], "`0` is not a whole number of at least 1");
    refused(&["generate", "x", "-n", "0"], "--max-tokens");
    refused(
        &["generate", "x", "--seed", "1.5"],
        "--seed <SEED>': `1.5` is not an integer of 64 bits (-1 draws a fresh seed)",
    );
    refused(&["generate", "x", "--raw", "--date", "2024-07-26"], "--raw");
    for threads in ["0", "1025", "20000", "1000000", "-1"] {
        refused(&["generate", "x", "--threads", threads], "is not a whole number from 1 to 1024");
    }
    refused(&["bench", "--depth", "x"], "--depth <TOKENS,...>': `x` is not a whole number");
    refused(&["laws", "--only", "gravity"], "there is no law called gravity; there are rows_max_is_what_a_step_takes");
    refused(&["bench", "--batch", "4,0"], "`0` is not a whole number of at least 1");
    refused(&["check", "--profile", "fast"], "quick, paper");
    refused(&["generate", "x", "--activations", "12"], "[possible values: 16, 8]");
    refused(&["generate", "x", "--arithmetic", "int8"], "[possible values: integers, bf16]");
    refused(&["generate", "x", "--arithmetic", "bf16", "--activations", "8"], "--arithmetic bf16 has none");
    for integers in [["--arithmetic", "integers"], ["--activations", "16"]] {
        refused(&[&["generate", "x", "--device", "cuda"], &integers[..]].concat(), "a GPU multiplies in bf16");
    }
    refused(&["no-such-command"], "no-such-command");
}

#[test]
fn heads_that_no_target_has_room_for() {
    let gemma = include_str!("../../vosti-model/configs/gemma-4-12b.json");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_string();
    let (model, out) = (path("config.json"), path("bundle"));
    std::fs::write(&model, gemma.replace("\"global_head_dim\": 512", "\"global_head_dim\": 1024")).expect("written");
    let says = "`head_dim` is 1024 in layer 5, not an even number between 2 and 512";
    // Refused before anything is compiled: no Python is looked for.
    refused(&["prepare", &model, "--target", "cuda-sm86", "--python", "/nowhere/python", "-o", &out], says);
    assert!(!Path::new(&out).exists());
}

/// There is no such model, so each of these shows that nothing was fetched or compiled before.
#[test]
fn a_bundle_that_could_not_be_written_in_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_string();
    std::fs::write(path("notes.txt"), "mine").expect("written");
    let prepare = |target: &str, out: &str, says: &str| {
        let words = ["prepare", "/nowhere/model.gguf", "--python", "/nowhere/python", "--target", target, "-o", out];
        refused(&words, says);
        refused(&[&words[..], &["--force"]].concat(), says);
    };
    prepare("abacus", &path("bundle"), "there is no target `abacus`; there are cpu, cuda-sm80");
    prepare("cuda-sm90", &path(""), "exists and is not a bundle; give another folder");
    prepare("cuda-sm90", &path("notes.txt"), "exists and is not a bundle; give another folder");
    prepare("cuda-sm90", &path("notes.txt/bundle"), "notes.txt/bundle: Not a directory");
    for none in [".", "..", "/", "x/.."] {
        prepare("cuda-sm90", none, "is no name for a bundle; give a folder that does not exist yet");
    }
    if cfg!(target_os = "linux") {
        prepare("cuda-sm90", "/proc/self/bundle", "/proc/self/bundle: ");
    }
    prepare("cuda-sm90", &path("new/bundle"), "/nowhere/model.gguf: no such file");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing was left");

    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/configs/smollm2-135m.json");
    let prepare = ["prepare", config.to_str().expect("a path"), "--context", "8193", "-o", &path("bundle")];
    refused(&prepare, "--context 8193 is longer than the model's own, 8192 tokens");
}

#[test]
fn a_page_of_verdicts_that_could_not_be_written_in_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = folder.path().join("kernel.py");
    std::fs::write(&kernel, "").expect("written");
    let verify = ["verify", kernel.to_str().expect("a path"), "--html", "/nowhere/page.html"];
    refused(&verify, "cannot write /nowhere/page.html");
}

/// No machine has so many. Without a driver its absence is told.
#[test]
fn a_gpu_that_is_not_there_where_a_model_would_be_fetched() {
    let Err(error) = vosti_cuda::Cuda::find(999) else { panic!("1,000 GPUs") };
    refused(&["generate", "x", "--model", "nobody/no-such-model", "--device", "cuda:999"], &error.to_string());
}

#[test]
fn certificates_that_could_not_be_written_in_the_end() {
    refused(&["verify", "--certificates", "/dev/null/certificates"], "cannot make /dev/null/certificates");
}

/// Its weights, which would take more memory than any machine has, are never made, and no GPU is looked for.
#[test]
fn a_configuration_alone_where_a_text_is_wanted_and_a_probe_of_a_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.json");
    std::fs::write(&config, "no configuration at all").expect("written");
    let model = ["--model", config.to_str().expect("a path")];
    for command in [&["generate", "a"][..], &["chat"], &["generate", "a", "--device", "cuda"]] {
        refused(&[command, &model].concat(), "is only a configuration, with random weights and no tokenizer");
    }
    refused(&["probe", "--model", "/nowhere/model.gguf"], "vosti probe tests GPUs: give --device cuda");
}
