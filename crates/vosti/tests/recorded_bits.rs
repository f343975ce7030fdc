//! The CPU device's logits, bit for bit, on any machine: digests that were recorded once, of the tiny models of every family.
//!
//! Every instruction set of every processor must give them, with a prompt in chunks (prefill) and token by token (decode). A
//! change of a number's definition, of a kernel's order of operations or of a tiny model changes them on purpose: then
//! replace the table by the one that the failing test prints, but never by a table of another instruction set alone.
//! `goldens.rs` says how close these logits are to other implementations'.

#[path = "common/run.rs"]
mod run;

use run::Run;
use safetensors::SafeTensors;
use vosti_contract::Dtype;
use vosti_cpu::Isa;

/// The first half of the BLAKE3 of every position's logits, with BF16 and with FP32 between kernels.
const RECORDED: [(&str, [&str; 2]); 41] = [
    ("llama", ["51d341077d4ba0d0a2a22259c7cfb971", "80f3e6bc816577ae9f464ae29b4c1397"]),
    ("llama-untied", ["db18f4fe4ad8a1fec114f597f9190625", "d27bdff1bc666aa084b3805681983d83"]),
    ("qwen2", ["1079bbc88750f63c9ef4a827892fbc40", "4110678161b9a0a7cfbf1aee51c5560d"]),
    ("qwen3", ["250a7b2bb8043405a3b4da1807acfa19", "dfd076f3c379e978e5bb10202873300d"]),
    ("qwen3-ragged", ["912ef0e35be998d9b312c651aca0a814", "a1c08d4b0d6376ab2507abec21daf631"]),
    ("ministral", ["cd7b2b69ef91ba458ea10d93897862c0", "297dfbc804eee545d8bd4dd7799b8d12"]),
    ("ministral3", ["a35968c978e9ff1e803eea9f373f8b34", "7055a23bc1323eb45367551afa09852e"]),
    ("phi3", ["e4f96960a2d054c225c7b5eba8f41e33", "15ede3a5653dcdcaea2e0ba212307272"]),
    ("gemma2", ["01d2e50c1c4468c236b8271e371f8d45", "d9f5326053fb92cf5b8bc65dd1f2932b"]),
    ("gemma3", ["de9c4508f2c0d5cc7179fbfc47c87ded", "17048da49ea64a2dfd8081f91c4e6f57"]),
    ("gemma4", ["963ca5d9d52eccb08704fe56015e85ca", "bcea71c4dc7230ee5dbfe2e4e286118a"]),
    ("gemma4-moe", ["011a933f341d9206b6d2c0b8098b65e9", "feae39ad73300dc84d6e97385b704394"]),
    ("gemma4-e2b", ["ba218503b6de469cf11071d6d8a2067d", "fc4f9e70a957c8aa4a0808f78daadee3"]),
    ("gemma4-e4b", ["81ffc7cb0d2ff72f26958e72e043fa37", "84d0e7b31deb8f2e45144896fdafe14a"]),
    ("gemma4-shared", ["1434ef06388b6733298851fc54ccf3db", "e3eefcffc9257bdbbc73ff01905dc188"]),
    ("olmo2", ["3da8a0f3ee49c9a5cadb0d704aef43ac", "eecc5d63117fcaeb03c79680b6d79455"]),
    ("olmo3", ["38cbdc6dfe6eca571dfa9d0abe2aff03", "1f190903f62555ed66be42fdf4115863"]),
    ("granite", ["cd19de8acfd97544c61536f74014334a", "c481d0f7ac3893805423d4e6ecb89e65"]),
    ("granite4", ["559429f731433465bde694e9e04b51ea", "e3f7564b05ee0743416c707d62491f48"]),
    ("granite4-h", ["18c85c0cff8fd67f960618688cc56916", "6423e11b414f2d102d842cb10fa5adc7"]),
    ("granite4-moe", ["89b093d81c8c638ac2660178c8b670ec", "a628a7d082371a8295c619a9323905f9"]),
    ("smollm3", ["d7fb8665560ad56672a34445347648de", "490ce66460b24ff6ee23423b07190e65"]),
    ("qwen3-moe", ["28a15f8be5c193eb0928f2f3e9e08eeb", "528c28b88ad764921b1968051e6f283f"]),
    ("olmoe", ["bfedad29f198be0f2d11daad6392b08f", "bfb3c45a7783fec17dc8cc5c75f4d786"]),
    ("mixtral", ["24395155cd1242f1cd0732299640f08a", "427e8098f501f7c73092bc5683c1db6a"]),
    ("granite-moe", ["84ed0da3b5f1b5f7d3318237f99e673f", "fbeab4efe306a372abed2d947a51c532"]),
    ("gpt-oss", ["98b33e76525d1f6fcd3ca1f8390c2c85", "635bac9b3cd795e7537d03010f7db4b7"]),
    ("lfm2", ["46b531afff0ebc2054bdd7d9e7a76ef4", "ab29c13a6f56edf2c98bf331c78fba71"]),
    ("lfm2-moe", ["ab848912fd1ff1c05a80b33826c6cfe3", "b9e180f215c7b2a1ef6d821590173df8"]),
    ("qwen3_5", ["33be58fefe98308604cf4efa53f35d85", "5e70127b2f1c58f51726ae4af165fcb7"]),
    ("qwen3_5-moe", ["c1959769a088b8c747f0c932f4d09b89", "b0e829dcc97140bab8ffe7b5756d1c29"]),
    ("qwen3-next", ["9481a0e479a2b619dde208db677e646b", "4802223e89e3ceaf67ba481365b7c9bf"]),
    ("glm4-moe", ["f379b42cb2ded16cb2075df74f511e4a", "8ad22770208bd5f1c76d94b097d3c6c1"]),
    ("ling", ["47bb5e46df6450460c35465d88a0cf23", "52b70c326f6c676dcd7c371222eb2a20"]),
    ("mamba2", ["6bced523926761dd1c66686d743dfc34", "ed6c0b92d8a950f995b2cfcacfc9b428"]),
    ("nemotron-h", ["a4225bda81e27666d003b89bfde051c4", "db622c35afc21007ab181112a2a3684d"]),
    ("nemotron-nano", ["af61692e7d4b4439e23825f6ff90975e", "74adf92bb3d3ee5fbd50bb37a9b19c07"]),
    ("nemotron3", ["1c06318a648de627a058783f8dc9f0c8", "554078fb76c256d6bc46f8f115467c11"]),
    ("falcon-h1", ["4c4307cff6a8f9faad018dbb1289f144", "3ee6b40e12c9e66ee7370f17da655503"]),
    ("minimax-m2", ["16bfc748a8e32580b19470d5a033e74a", "9280b03a700304c5832f39a3061f281b"]),
    ("ernie4_5", ["84dc7372e02b3a8ffe4f01edec19d8ca", "0f5265058f60f4597c70fd0ef3dd48fb"]),
];

/// The tokens of a tiny model's golden, of which the machine's own logits are taken.
fn tokens(golden: &[u8]) -> Vec<u32> {
    let golden = SafeTensors::deserialize(golden).unwrap();
    let tokens = golden.tensor("tokens").unwrap();
    tokens.data().chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// The digest of all logits of a model, computed by an instruction set in chunks of so many tokens.
fn digest(name: &str, act: Dtype, isa: Isa, chunk: usize) -> String {
    let (folder, decoder, files) = run::tiny(name);
    let tokens = tokens(&std::fs::read(folder.join("golden.safetensors")).unwrap());
    let mut hash = blake3::Hasher::new();
    let mut spread = [f32::INFINITY, f32::NEG_INFINITY];
    Run::new(&decoder, &files, act, tokens.len(), chunk, Some(isa)).prompt(&tokens, |_, row| {
        for logit in row {
            hash.update(&logit.to_bits().to_le_bytes());
            assert!(logit.is_finite(), "{name}: {logit}");
            spread = [spread[0].min(*logit), spread[1].max(*logit)];
        }
    });
    // Constants have the same bits anywhere.
    assert!(spread[1] - spread[0] > 1.0, "{name}: all logits are within {spread:?}");
    hash.finalize().to_hex()[..32].to_owned()
}

#[test]
fn every_processor_gives_the_recorded_logits_in_prefill_and_in_decode() {
    let (acts, isas) = ([Dtype::Bf16, Dtype::F32], Isa::tried());
    let computed = run::TINY.map(|name| (name, acts.map(|act| digest(name, act, Isa::detect(), 47))));
    for (name, [bf16, f32]) in &computed {
        println!("    ({name:?}, [{bf16:?}, {f32:?}]),");
    }
    let recorded = RECORDED.map(|(name, digests)| (name, digests.map(str::to_owned)));
    assert_eq!(computed, recorded, "this machine computes other bits than those that were recorded");
    for (name, digests) in &recorded {
        for (act, digest_recorded) in acts.into_iter().zip(digests) {
            for isa in isas {
                for chunk in [1, 64] {
                    assert_eq!(digest(name, act, *isa, chunk), *digest_recorded, "{name} {act:?} {isa:?} by {chunk}");
                }
            }
        }
    }
}
