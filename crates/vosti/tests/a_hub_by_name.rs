//! `ORG/REPO[:QUANT]` against a test hub that serves real files as Hugging Face's does: a fetched model is complete and
//! pinned, an interrupted fetch continues, a complete model needs no hub, and a mistake is one line.

mod common;

use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with models, which records what it is asked.
struct Hub {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    /// If set, each body ends after so many bytes.
    cut: Arc<Mutex<Option<usize>>>,
}

type Files = BTreeMap<String, Vec<u8>>;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file as the hub lists it: large ones by SHA-256, small ones by git's name for them.
fn listed(name: &str, bytes: &[u8]) -> Value {
    let mut git = Sha1::new();
    git.update(format!("blob {}\0", bytes.len()));
    git.update(bytes);
    let mut file = json!({ "rfilename": name, "size": bytes.len(), "blobId": hex(&git.finalize()) });
    if name.ends_with(".safetensors") || name.ends_with(".gguf") {
        file["lfs"] = json!({ "sha256": hex(&Sha256::digest(bytes)), "size": bytes.len(), "pointerSize": 134 });
    }
    file
}

impl Hub {
    fn start(models: BTreeMap<&'static str, Files>) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, cut) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let (log, ends) = (asked.clone(), cut.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &models, &log, *ends.lock().unwrap());
            }
        });
        Hub { url, asked, cut }
    }

    /// Runs the command with this hub and a cache in `home`.
    fn vosti(&self, home: &Path, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vosti"));
        command.args(arguments).env("HF_ENDPOINT", &self.url).env("HF_HOME", home).env_remove("HF_HUB_CACHE");
        command.env_remove("HF_TOKEN").output().expect("the binary starts")
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn answer(mut stream: TcpStream, models: &BTreeMap<&str, Files>, log: &Mutex<Vec<String>>, cut: Option<usize>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).map(|line| line.to_lowercase()).collect();
    let from = headers.iter().find_map(|line| line.strip_prefix("range: bytes=")?.trim_end_matches('-').parse().ok());
    log.lock().unwrap().push(from.map_or(path.clone(), |from: usize| format!("{path} from {from}")));
    let (status, body) = match found(&path, models) {
        Some(body) if from.is_some() => ("206 Partial Content", body),
        Some(body) => ("200 OK", body),
        None if path.contains("/gated/") => ("401 Unauthorized", Vec::new()),
        None => ("404 Not Found", Vec::new()),
    };
    let start = from.unwrap_or(0).min(body.len());
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{}\r\nconnection: close\r\n\r\n",
        body.len() - start,
        body.len().saturating_sub(1),
        body.len()
    );
    let body = &body[start..];
    let whole = path.starts_with("/api/");
    let body = &body[..if whole { body.len() } else { cut.unwrap_or(body.len()).min(body.len()) }];
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn found(path: &str, models: &BTreeMap<&str, Files>) -> Option<Vec<u8>> {
    if let Some(rest) = path.strip_prefix("/api/models/") {
        let (name, revision) = rest.split_once("/revision/")?;
        if !["main?blobs=true", "refs%2Fpr%2F1?blobs=true", &format!("{COMMIT}?blobs=true")].contains(&revision) {
            return None;
        }
        let files: Vec<Value> = models.get(name)?.iter().map(|(name, bytes)| listed(name, bytes)).collect();
        return Some(json!({ "id": name, "sha": COMMIT, "siblings": files }).to_string().into_bytes());
    }
    let (name, file) = path[1..].split_once(&format!("/resolve/{COMMIT}/"))?;
    models.get(name)?.get(file).cloned()
}

fn said(output: &Output) -> (String, String) {
    (String::from_utf8_lossy(&output.stdout).into_owned(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A hub with a folder of safetensors, and a real GGUF file beside others in one repository, and in one that has a short name.
fn hub() -> Hub {
    let folder = tempfile::tempdir().unwrap();
    common::tiny(folder.path());
    let read =
        |entry: std::fs::DirEntry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap());
    let mut tiny: Files = std::fs::read_dir(folder.path()).unwrap().map(|entry| read(entry.unwrap())).collect();
    tiny.insert("README.md".into(), b"# not read".to_vec());
    tiny.insert("onnx/model.onnx".into(), vec![0; 1000]);
    let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../vosti-model/tests/text/tiny-gemma4.gguf");
    let gguf = std::fs::read(gguf).unwrap();
    let named = [("Qwen3-0.6B-Q8_0.gguf".to_string(), gguf.clone())].into();
    let quants =
        [("tiny-Q4_K_M.gguf", gguf.clone()), ("Q8_0/tiny-Q8_0.gguf", gguf), ("mmproj-tiny-f16.gguf", vec![1; 9])];
    let quants = quants.into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect();
    Hub::start([("org/tiny", tiny), ("org/tiny-GGUF", quants), ("Qwen/Qwen3-0.6B-GGUF", named)].into())
}

#[test]
fn a_folder_is_fetched_whole_pinned_and_used_without_the_hub_afterwards() {
    let (hub, home) = (hub(), tempfile::tempdir().unwrap());
    let generate = ["generate", "ab", "--model", "org/tiny", "-n", "4", "--seed", "1"];
    *hub.cut.lock().unwrap() = Some(2_000);
    let (_, error) = said(&hub.vosti(home.path(), &["pull", "org/tiny"]));
    assert!(error.contains("the connection ended at byte 2000"), "{error}");
    let snapshot = home.path().join("hub/models--org--tiny/snapshots").join(COMMIT);
    assert!(
        !snapshot.join("model.safetensors").exists() && !home.path().join("hub/models--org--tiny/refs/main").exists()
    );
    // An incomplete snapshot is not taken for a whole one, not even by its commit.
    let pinned = format!("org/tiny@{COMMIT}");
    assert!(!hub.vosti(home.path(), &["pull", &pinned]).status.success());
    *hub.cut.lock().unwrap() = None;
    hub.asked();
    assert!(hub.vosti(home.path(), &["tokenize", "x", "--model", &pinned]).status.success());
    assert!(!hub.asked().is_empty(), "what is not whole is asked for");
    std::fs::remove_dir_all(home.path().join("hub")).unwrap();
    *hub.cut.lock().unwrap() = Some(2_000);
    hub.vosti(home.path(), &["pull", "org/tiny"]);
    *hub.cut.lock().unwrap() = None;
    hub.asked();

    let (path, error) = said(&hub.vosti(home.path(), &["pull", "org/tiny"]));
    assert_eq!(path.trim(), snapshot.to_str().unwrap(), "{error}");
    assert!(error.contains(COMMIT), "the commit is printed: {error}");
    let asked = hub.asked();
    assert!(asked.iter().any(|path| path.ends_with("from 2000")), "it goes on where it was cut: {asked:?}");
    assert!(!asked.iter().any(|path| path.contains("README") || path.contains("onnx")), "{asked:?}");
    // The layout of Hugging Face's cache: a snapshot's file is a link to the blob that is named by its hash.
    let blob = std::fs::read_link(snapshot.join("model.safetensors")).unwrap();
    let bytes = std::fs::read(snapshot.join("model.safetensors")).unwrap();
    assert_eq!(blob, Path::new("../../blobs").join(hex(&Sha256::digest(&bytes))));

    let here = hub.vosti(home.path(), &generate);
    assert!(here.status.success() && !here.stdout.is_empty(), "{:?}", said(&here));
    assert_eq!(hub.asked(), Vec::<String>::new(), "what is here is used without asking");
    assert!(hub.vosti(home.path(), &["tokenize", "x", "--model", &pinned]).status.success());
    assert_eq!(hub.asked(), Vec::<String>::new(), "its commit is here under the branch's name");

    // A branch's name may hold slashes; the cache keeps it as Hugging Face's client does.
    let slashed = ["tokenize", "x", "--model", "org/tiny@refs/pr/1"];
    let (_, error) = said(&hub.vosti(home.path(), &slashed));
    assert_eq!(hub.asked(), ["/api/models/org/tiny/revision/refs%2Fpr%2F1?blobs=true"], "{error}");
    let recorded = home.path().join("hub/models--org--tiny/refs/refs/pr/1");
    assert_eq!(std::fs::read_to_string(recorded).unwrap(), COMMIT);
    assert!(hub.vosti(home.path(), &slashed).status.success() && hub.asked().is_empty());

    std::fs::remove_file(snapshot.join("model.safetensors")).unwrap();
    assert_eq!(hub.vosti(home.path(), &generate).stdout, here.stdout, "what was lost is brought again");
}

#[test]
fn one_quantisation_of_several_is_taken_by_its_name_and_wrong_names_are_one_line() {
    let (hub, home) = (hub(), tempfile::tempdir().unwrap());
    let (path, error) = said(&hub.vosti(home.path(), &["pull", "org/tiny-GGUF"]));
    assert!(path.trim().ends_with("tiny-Q4_K_M.gguf"), "{path} {error}");
    let (path, error) = said(&hub.vosti(home.path(), &["pull", "org/tiny-GGUF:q8_0"]));
    assert!(path.trim().ends_with("Q8_0/tiny-Q8_0.gguf"), "{path} {error}");
    hub.asked();
    let (_, error) = said(&hub.vosti(home.path(), &["tokenize", "x", "--model", "org/tiny-GGUF:q8_0"]));
    assert_eq!(hub.asked(), Vec::<String>::new(), "what is here is used without asking: {error}");
    let refused = [
        (["pull", "org/tiny-GGUF:Q2_K"], "Q8_0, Q4_K_M"),
        (["pull", "org/nothing"], "no such model"),
        (["pull", "gated/model"], "HF_TOKEN"),
        (["tokenize", "--model=org/nothing"], "is not a path on this machine"),
    ];
    for (words, says) in refused {
        let words: Vec<&str> = words.into_iter().chain((words[0] == "tokenize").then_some("x")).collect();
        let output = hub.vosti(home.path(), &words);
        let (out, error) = said(&output);
        assert_eq!((output.status.code(), out.as_str()), (Some(2), ""), "{error}");
        assert!(error.starts_with("vosti: ") && error.lines().count() == 1 && error.contains(says), "{error}");
    }
}

/// A short name stands for the long one: the same file, the same cache, no second fetch.
#[test]
fn a_short_name_is_the_hubs_name_and_is_listed() {
    let (hub, home) = (hub(), tempfile::tempdir().unwrap());
    let listed = || -> Value {
        let (out, error) = said(&hub.vosti(home.path(), &["models", "--json"]));
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{error}"))
    };
    let here = |name: &str| {
        let list = listed();
        let entry = list.as_array().unwrap().iter().find(|model| model["name"] == name).unwrap().clone();
        (entry["here"].as_bool().unwrap(), entry["hub"].as_str().unwrap().to_string())
    };
    let long = "Qwen/Qwen3-0.6B-GGUF:Q8_0";
    assert_eq!(here("qwen3-0.6b"), (false, long.into()));
    for short in vosti::catalogue::shorts() {
        assert_eq!(here(&short.name).1, short.hub);
    }
    let missing = hub.vosti(home.path(), &["tokenize", "x", "--model", "llama3.2-1b"]);
    let (_, error) = said(&missing);
    let says = ["bartowski/Llama-3.2-1B-Instruct-GGUF", "no such model"];
    assert!(error.lines().count() == 1 && says.iter().all(|part| error.contains(part)), "{error}");
    let (_, error) = said(&hub.vosti(home.path(), &["pull", "qwen3-0.6b", "--from", "pip"]));
    assert!(error.contains("leave out --from pip"), "{error}");
    hub.asked();

    // This hub's file of that name is a real one without weights: the error of opening it names the file.
    let short = said(&hub.vosti(home.path(), &["tokenize", "x", "--model", "qwen3-0.6b"]));
    assert!(short.1.starts_with("vosti: Qwen3-0.6B-Q8_0.gguf: "), "{short:?}");
    let asked = hub.asked();
    assert!(asked.iter().any(|path| path.ends_with("Qwen3-0.6B-Q8_0.gguf")), "{asked:?}");
    assert_eq!(here("qwen3-0.6b"), (true, long.into()));
    assert_eq!(said(&hub.vosti(home.path(), &["tokenize", "x", "--model", long])), short);
    assert_eq!(hub.asked(), Vec::<String>::new(), "the long name finds what the short one fetched");
    let [one, other] = [long, "qwen3-0.6b"].map(|name| said(&hub.vosti(home.path(), &["pull", name])).0);
    assert!(one.trim().ends_with("Qwen3-0.6B-Q8_0.gguf") && one == other, "{one} {other}");
}

/// Completes each line with the script that `vosti completions bash` prints, as bash's readline does.
const IN_BASH: &str = r#"
source <("$0" completions bash)
function="$(complete -p vosti)" && function="${function#*-F }" && function="${function%% *}"
for line; do
    COMP_LINE="$line" COMP_POINT="${#line}" COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    [[ "$line" == *" " ]] && COMP_WORDS+=("") && ((++COMP_CWORD))
    COMP_WORDS[0]="$0"
    "$function" "$0" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "${COMPREPLY[@]}"
done
"#;

#[test]
fn a_shell_completes_names_and_the_models_of_a_hub_that_are_on_disk() {
    let (hub, home) = (hub(), tempfile::tempdir().unwrap());
    for name in ["org/tiny", "org/tiny-GGUF:Q8_0"] {
        assert!(hub.vosti(home.path(), &["pull", name]).status.success());
    }
    // A file that another client is still fetching.
    std::fs::create_dir_all(home.path().join("hub/models--org--half/refs")).unwrap();
    std::fs::write(home.path().join("hub/models--org--half/refs/main"), COMMIT).unwrap();
    let (out, _) = said(&hub.vosti(home.path(), &["models"]));
    let (_, also) = out.split_once("Also here:\n").expect("models of a hub");
    let also: Vec<&str> = also.lines().take(2).map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(also, ["org/tiny", "org/tiny-GGUF:Q8_0"], "{out}");

    let complete = |lines: &[&str]| -> Vec<String> {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", IN_BASH, env!("CARGO_BIN_EXE_vosti")]).args(lines);
        let (out, error) = said(&bash.env("HF_HOME", home.path()).env_remove("HF_HUB_CACHE").output().unwrap());
        assert_eq!(error, "");
        out.lines().map(str::to_string).collect()
    };
    let completed = complete(&[
        "vosti chat --model smollm2-1",
        "vosti chat -m org/",
        "vosti serve --port 1 --model org/tiny-GGUF:Q",
        "vosti chat --model=org/tiny-",
        "vosti pull org/tiny-GGUF",
        "vosti chat --model ./",
        "vosti chat --mod",
        "vosti generate x --weights ",
    ]);
    let wanted = [
        "smollm2-135m smollm2-1.7b",
        "org/tiny org/tiny-GGUF:Q8_0",
        // What follows the colon, which parts words there.
        "Q8_0",
        "org/tiny-GGUF:Q8_0",
        "org/tiny-GGUF:Q8_0",
        // Left to bash: files.
        "",
        "--model",
        "as-they-come expanded",
    ];
    assert_eq!(completed, wanted);
    let names = complete(&["vosti chat -m "]).concat();
    assert!(vosti::catalogue::names().all(|name| names.split(' ').any(|known| known == name)), "{names}");
    // zsh and fish ask for the same names.
    for (shell, wants) in [("zsh", ":NAME|PATH:_vosti_models'"), ("fish", " -l model ")] {
        let (script, _) = said(&hub.vosti(home.path(), &["completions", shell]));
        let wanting: Vec<&str> = script.lines().filter(|line| line.contains(wants)).collect();
        assert!(wanting.len() >= 9, "{shell}: {wanting:?}");
        assert!(shell == "zsh" || wanting.iter().all(|line| line.ends_with("(vosti models --names)\"")), "{wanting:?}");
        assert!(!script.contains("NAME|PATH:_default"), "{shell}");
    }
}
