//! Every metric that deploy/ asks Prometheus for is in `/metrics`.

use crate::common::{completion, get, toy};
use std::collections::BTreeSet;
use std::path::Path;

/// Every name of a metric in a text: `vllm:` or `vosti:` and what follows.
fn names(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["vllm:", "vosti:"] {
        for (at, _) in text.match_indices(prefix) {
            let name: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || "_:".contains(*c)).collect();
            found.insert(name);
        }
    }
    found
}

#[tokio::test]
async fn dashboards_and_scaling_name_metrics_that_there_are() {
    let server = toy();
    // A metric with labels appears once something was counted.
    server.ok("/v1/completions", completion("a")).await;
    server.send(get("/v1/models/none")).await;
    let served = server.metrics().await;
    let there: BTreeSet<&str> =
        served.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split(['{', ' ']).next()).collect();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let mut asked = 0;
    for file in ["grafana/vosti.json", "prometheus/adapter.yaml"] {
        let text = std::fs::read_to_string(deploy.join(file)).unwrap();
        for name in names(&text) {
            assert!(there.contains(name.as_str()), "{file} asks for {name}, which /metrics has not:\n{served}");
            asked += 1;
        }
    }
    assert!(asked > 20, "{asked} names");
}

#[test]
fn every_panel_has_its_own_id_a_description_and_queries_of_the_chosen_model() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana/vosti.json");
    let board: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && !panel["description"].as_str().unwrap().is_empty(), "{panel}");
        assert!(targets.iter().all(|target| target["expr"].as_str().unwrap().contains("$model")), "{panel}");
    }
}
