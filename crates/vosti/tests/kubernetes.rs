//! The Helm chart: linted, rendered, valid by Kubernetes' own schemas, and what it starts is a command that `vosti` knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use vosti_test_tools as tools;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm");

/// Everything that can be turned on.
const ALL: &str = r#"
model: no-such-folder/model.gguf
context: 2048
extraArgs: ["--speculate", "--max-queue=100"]
env: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]
apiKey: {existingSecret: vosti}
huggingFaceToken: {existingSecret: hub}
models: {persistence: {enabled: true, storageClass: nfs}}
autoscaling: {enabled: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
service: {type: LoadBalancer, annotations: {a: b}}
podAnnotations: {a: b}
podLabels: {team: x}
nodeSelector: {disk: ssd}
tolerations: [{key: llm, operator: Exists}]
imagePullSecrets: [{name: registry}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}}
"#;

struct Helm(PathBuf);

impl Helm {
    fn run(&self, command: &[&str], settings: &[&str]) -> Output {
        Command::new(&self.0).args(command).arg(CHART).args(settings).output().expect("Helm starts")
    }

    fn render(&self, settings: &[&str]) -> String {
        text(self.run(&["template", "demo"], settings))
    }
}

fn text(output: Output) -> String {
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    out.into_owned()
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    path.to_str().expect("a path").into()
}

#[test]
fn the_chart_renders_what_kubernetes_takes() {
    let (Some(helm), Some(python)) = (tools::helm(), tools::python("kubernetes_validate")) else { return };
    let (helm, folder) = (Helm(helm), tempfile::tempdir().expect("a folder"));
    let all = written(folder.path(), "all.yaml", ALL);
    let claimed = ["--set", "models.existingClaim=models,models.readOnly=true,podDisruptionBudget.enabled=false"];
    for (settings, kinds) in [
        (&[][..], &["Deployment", "PodDisruptionBudget", "Service"][..]),
        (
            &["-f", &all],
            &[
                "Deployment",
                "HorizontalPodAutoscaler",
                "PersistentVolumeClaim",
                "PodDisruptionBudget",
                "Service",
                "ServiceMonitor",
            ],
        ),
        (&claimed, &["Deployment", "Service"]),
    ] {
        text(helm.run(&["lint", "--strict"], settings));
        let rendered = helm.render(settings);
        let mut found: Vec<&str> = rendered.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        found.sort_unstable();
        assert_eq!(found, kinds, "{settings:?}");
        // ServiceMonitor is not Kubernetes' own kind, and has no schema here.
        let own: Vec<&str> = rendered.split("---\n").filter(|part| !part.contains("kind: ServiceMonitor")).collect();
        let manifests = written(folder.path(), "manifests.yaml", &own.join("---\n"));
        let mut validate = Command::new(&python);
        text(validate.args(["-m", "kubernetes_validate", "--strict", &manifests]).output().expect("Python starts"));
    }
}

#[test]
fn the_chart_starts_a_command_that_vosti_knows() {
    let Some(helm) = tools::helm() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let rendered = Helm(helm).render(&["-f", &written(folder.path(), "all.yaml", ALL)]);
    let after = rendered.split_once("args:\n").expect("arguments").1;
    let lines = after.lines().map_while(|line| line.trim().strip_prefix("- "));
    let arguments: Vec<String> = lines.map(|line| line.trim_matches('"').to_string()).collect();
    assert_eq!(arguments[0], "serve");
    // The arguments are right if the command's only error is that it does not find the model. Port 0 is any free port.
    let mut vosti = Command::new(env!("CARGO_BIN_EXE_vosti"));
    let arguments = arguments.iter().map(|argument| if argument == "--port=8000" { "--port=0" } else { argument });
    let output = vosti.args(arguments).output().expect("the binary starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.lines().last().is_some_and(|line| line.contains("no-such-folder/model.gguf")), "{error}");
}

#[test]
fn a_value_that_the_chart_has_not_is_refused_by_name() {
    let Some(helm) = tools::helm() else { return };
    let helm = Helm(helm);
    for (setting, named) in [
        ("contxt=5", "contxt"),
        ("replicas=many", "replicas"),
        ("kvMemory=1Gi", "kvMemory"),
        ("service.type=Open", "type"),
    ] {
        let output = helm.run(&["template", "demo"], &["--set", setting]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(named), "{setting}: {error}");
    }
}

#[test]
fn a_pod_that_ends_has_time_for_its_answers() {
    let Some(helm) = tools::helm() else { return };
    let rendered = Helm(helm).render(&[]);
    let number = |name: &str| -> u64 {
        let after = rendered.split_once(name).unwrap_or_else(|| panic!("no {name} in {rendered}")).1;
        let digits: String =
            after.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let longest = vosti_server::Limits::default().request_time_max.as_secs();
    assert!(number("terminationGracePeriodSeconds:") >= longest + number("[\"sleep\","));
}
