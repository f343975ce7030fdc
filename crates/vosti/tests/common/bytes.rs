//! A tokenizer that fits any model of a test.

/// A tokenizer of single bytes.
pub fn tokenizer(folder: &std::path::Path) {
    // How byte-level vocabularies write bytes: as themselves where they print, else from U+0100 on.
    let prints = |b: u32| (0x21..0x7f).contains(&b) || (0xa1..0xad).contains(&b) || (0xae..0x100).contains(&b);
    let letter = |b: u32| if prints(b) { b } else { 256 + (0..b).filter(|b| !prints(*b)).count() as u32 };
    let vocab: serde_json::Map<String, serde_json::Value> =
        (0..256).map(|b| (char::from_u32(letter(b)).unwrap().to_string(), b.into())).collect();
    let level =
        serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": level, "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}
