//! A config.json of any bytes gives a plan that the core accepts, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_kernels::Act;
use vosti_model::{PlanOptions, families, plan};

fuzz_target!(|data: &[u8]| {
    let Ok(config) = serde_json::from_slice(data) else { return };
    let Ok(decoder) = families::from_config("config.json", &config) else { return };
    if let Ok(plan) = plan(&decoder, &PlanOptions { target: "cpu", act: Act::Bf16, context: Some(8) }) {
        assert!(plan.program.check().is_ok());
    }
});
