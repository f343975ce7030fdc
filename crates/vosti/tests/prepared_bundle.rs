//! `vosti prepare` and `--bundle`: a bundle changes no bit, and only its own model can use it.

mod common;

#[test]
fn a_prepared_model_runs_with_the_same_bits_and_another_is_refused_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    std::fs::create_dir(&model).unwrap();
    common::tiny(&model);
    let vosti = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vosti"));
        let out = command.args(arguments).args(["--model", model.to_str().unwrap()]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (out.status.code(), text(&out.stdout), text(&out.stderr))
    };
    let folder = bundle.to_str().unwrap();
    let prepare = |extra: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vosti"));
        let out = command.args(["prepare", model.to_str().unwrap(), "-o", folder]).args(extra).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    assert_eq!(prepare(&[]).0, Some(0));
    let (code, why) = prepare(&[]);
    assert!(code == Some(2) && why.contains("--force") && why.lines().count() == 1, "{why}");
    assert_eq!(prepare(&["--force"]).0, Some(0));
    let (code, why) = prepare(&["--force", "--target", "abacus"]);
    assert!(code == Some(2) && why.contains("abacus") && why.lines().count() == 1, "{why}");

    let (code, why) = prepare(&["--force", "--context", "9999999"]);
    assert!(code == Some(2) && why.contains("longer than the model's own"), "{why}");

    let ask = ["generate", "hello", "-n", "8", "--seed", "7", "--ignore-eos"];
    let plain = vosti(&ask);
    assert_eq!(plain.0, Some(0), "{}", plain.2);
    let bundled = vosti(&[&ask[..], &["--bundle", folder]].concat());
    assert_eq!((bundled.0, &bundled.1), (Some(0), &plain.1), "{}", bundled.2);
    let fingerprint = |text: &str| text.lines().find(|l| l.starts_with("fingerprint")).map(str::to_string);
    assert!(fingerprint(&plain.2).is_some() && fingerprint(&plain.2) == fingerprint(&bundled.2));

    let weights = model.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let (code, _, why) = vosti(&[&ask[..], &["--bundle", folder]].concat());
    let lines: Vec<&str> = why.lines().filter(|l| l.starts_with("vosti: ")).collect();
    assert!(code == Some(2) && lines.len() == 1 && lines[0].contains("another model"), "{why}");
}

#[test]
fn of_several_that_prepare_one_folder_at_once_one_writes_it_and_the_others_say_that_it_is_there() {
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    std::fs::create_dir(&model).unwrap();
    common::tiny(&model);
    let start = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vosti"));
        command.args([std::ffi::OsStr::new("prepare"), model.as_ref(), "-o".as_ref(), bundle.as_ref()]);
        command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap()
    };
    let all = [start(), start(), start(), start()].map(|one| one.wait_with_output().unwrap());
    let (wrote, refused): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.status.success());
    assert_eq!(wrote.len(), 1);
    for one in refused {
        let why = String::from_utf8_lossy(&one.stderr);
        assert!(
            one.status.code() == Some(2) && why.contains("bundle exists; give another folder, or --force"),
            "{why}"
        );
    }
    vosti_admission::Bundle::read(&bundle).unwrap();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "the model and the bundle");
}
