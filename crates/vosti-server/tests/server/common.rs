//! A server over a device without a model, for tests: byte-level tokenizer, real engine, real routes.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tower::ServiceExt;
use vosti_check::symbolic::{SymbolicDevice, program};
use vosti_core::{Device, DeviceError, Program, StepPlan};
use vosti_engine::{Engine, EngineHandle, Policy, Status};
use vosti_model::{ChatTemplate, ModelError, Tokenizer};
use vosti_server::app::{App, router};
use vosti_server::cors::Origins;
use vosti_server::{Identity, Language, Limits, PageBytes, ServerConfig, Service, UnknownFields};

/// 256 bytes, and two control tokens.
pub const VOCAB: u32 = 258;
pub const END: u32 = 257;
pub const CONTEXT: u32 = 1_000;
pub const PAGES: usize = 64;

/// Waiting for longer than this is a failure, on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Weights of the symbolic device.
pub const WEIGHTS: u64 = 11;

struct Toy {
    tokenizer: Tokenizer,
    chat: Option<ChatTemplate>,
}

impl Language for Toy {
    fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn chat(&self) -> Result<&ChatTemplate, ModelError> {
        self.chat.as_ref().ok_or(ModelError::NoChatTemplate)
    }
}

/// The letters that GPT-2 writes for bytes: printable bytes as themselves, the others from U+0100 on.
fn byte_names() -> Vec<char> {
    let printable = |b: u32| (33..=126).contains(&b) || (161..=172).contains(&b) || (174..=255).contains(&b);
    let mut next = 256;
    let name = |b: u32| {
        let code = if printable(b) { b } else { next };
        next += u32::from(!printable(b));
        char::from_u32(code).unwrap()
    };
    (0..256).map(name).collect()
}

/// The first of the tokens around gaps: before the text before one, the text after it, and the text in it; then padding. Then the
/// tokens of marks. Their ids are those of bytes that no text has.
pub const GAP: u32 = 250;
const MARKS: [&str; 6] =
    ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<tool_call>", "</think>"];
pub const CALL: u32 = 254;
pub const CLOSE: u32 = 255;

/// Token b is byte b, but for the tokens around gaps and of marks if there are any.
pub fn tokenizer(marks: bool) -> Tokenizer {
    let marks = if marks { &MARKS[..] } else { &[] };
    let name = |(id, name): (usize, char)| match marks.get(id.wrapping_sub(GAP as usize)) {
        Some(mark) => (mark.to_string(), id.into()),
        None => (name.to_string(), id.into()),
    };
    let vocab: serde_json::Map<String, Value> = byte_names().into_iter().enumerate().map(name).collect();
    let special = |id: u32, text: &str| {
        json!({"id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
            "special": true})
    };
    let mut added = vec![special(256, "<|im_start|>"), special(END, "<|im_end|>")];
    added.extend(marks.iter().zip(GAP..).map(|(text, id)| special(id, text)));
    let json = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    Tokenizer::from_json(json, &json!({"eos_token": "<|im_end|>"}), &[]).unwrap()
}

pub const TEMPLATE: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A device that steps only when the test lets it.
pub struct Gated {
    inner: SymbolicDevice,
    gate: Option<Receiver<()>>,
}

impl Device for Gated {
    type Logits = [f32];
    type Top = [(vosti_core::Token, f32)];

    vosti_engine::forward_device!(device in [Self { inner: device, .. }]: limits, clear, rows);

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        if let Some(gate) = &self.gate {
            // The gate's other side is gone or a test went wrong: step freely, so that the test fails instead of hanging.
            let _ = gate.recv_timeout(PATIENCE);
        }
        self.inner.run(program, plan)
    }
}

/// A server and its engine.
pub struct Toyserver {
    pub app: Arc<App>,
    pub router: Router,
    pub engine: EngineHandle,
    /// Each message lets the device make one step; without a gate it steps freely.
    pub gate: Option<Mutex<Sender<()>>>,
}

/// The settings that tests vary.
pub struct Options {
    pub limits: Limits,
    pub api_keys: Vec<String>,
    pub policy: Policy,
    pub pages: usize,
    pub gated: bool,
    pub log_prompts: bool,
    pub chat: bool,
    pub unknown_fields: UnknownFields,
    pub cors_origins: Origins,
    pub trust_chat_template: bool,
    pub template: String,
    /// The vocabulary has tokens around gaps, and of the marks of calls and thoughts.
    pub marks: bool,
    pub defaults: vosti_engine::Defaults,
    /// Rows have experts: the best next token stands for the one that a row chose.
    pub experts: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (limits, policy) = (Limits::default(), Policy::default());
        Self {
            limits,
            api_keys: Vec::new(),
            policy,
            pages: PAGES,
            gated: false,
            log_prompts: false,
            chat: true,
            unknown_fields: UnknownFields::Refuse,
            cors_origins: Origins::None,
            trust_chat_template: false,
            template: TEMPLATE.into(),
            marks: false,
            defaults: vosti_engine::Defaults::default(),
            experts: false,
        }
    }
}

pub fn config(options: &Options) -> ServerConfig {
    ServerConfig {
        port: 0,
        model_names: vec!["toy".into(), "alias".into()],
        api_keys: options.api_keys.clone(),
        limits: options.limits,
        log_prompts: options.log_prompts,
        unknown_fields: options.unknown_fields,
        cors_origins: options.cors_origins.clone(),
        trust_chat_template: options.trust_chat_template,
        ..ServerConfig::default()
    }
}

/// An engine over the symbolic device, as a service.
pub fn service(options: &Options) -> (Arc<Service>, EngineHandle, Option<Mutex<Sender<()>>>) {
    let program = program(&[None], &[0, 0], VOCAB, CONTEXT);
    let inner = SymbolicDevice::new(&program, &[options.pages], 64, 64, WEIGHTS);
    let (open, gate) = channel();
    let device = Gated { inner, gate: options.gated.then_some(gate) };
    let buffers = vec![program.logits; 2];
    let mut engine = Engine::new(device, program, options.policy).unwrap();
    let read = |device: &Gated, _: u32, row: usize| vec![device.best(row) as i32];
    engine.set_routing(options.experts.then_some(vosti_engine::Routing { buffers, read }));
    let identity = Identity {
        fingerprint: "vosti-toy".into(),
        arithmetic: "bf16".into(),
        vocab: VOCAB,
        context: CONTEXT as usize,
        running_max: options.policy.running_max,
        pages: vec![PageBytes { all: 4096, state: 1024 }],
    };
    let (engine, _thread) = EngineHandle::spawn(engine).unwrap();
    let template = || {
        let template = ChatTemplate::new(options.template.clone(), String::new(), "<|im_end|>".into()).unwrap();
        template.with_tokens(tokenizer(options.marks).added()).unwrap()
    };
    let toy = Toy { tokenizer: tokenizer(options.marks), chat: options.chat.then(template) };
    let service = Service::new(engine.clone(), Arc::new(toy), identity, options.defaults.clone()).unwrap();
    (Arc::new(service), engine, options.gated.then_some(Mutex::new(open)))
}

pub fn serve(options: &Options) -> Toyserver {
    let app = App::new(config(options));
    let (service, engine, gate) = service(options);
    app.ready(service);
    Toyserver { router: router(app.clone()), app, engine, gate }
}

pub fn toy() -> Toyserver {
    serve(&Options::default())
}

pub fn post(path: &str, body: &Value) -> Request<Body> {
    let request = Request::post(path).header("content-type", "application/json");
    request.body(Body::from(body.to_string())).unwrap()
}

pub fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// A response, read to its end.
pub struct Answer {
    pub status: StatusCode,
    pub headers: axum::http::HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The chunks of a stream, which must end with [DONE].
    pub fn chunks(&self) -> Vec<Value> {
        let data: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let (last, chunks) = data.split_last().expect("no events");
        assert_eq!(*last, "[DONE]", "{}", self.text);
        chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
    }

    /// The status, the field and the message of an error.
    pub fn error(&self) -> (u16, String, String) {
        let error = &self.json()["error"];
        if let Some(message) = error.as_str() {
            // ollama's shape.
            return (self.status.as_u16(), String::new(), message.to_string());
        }
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_string();
        (self.status.as_u16(), text("param"), text("message"))
    }
}

pub async fn read(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

impl Toyserver {
    pub async fn send(&self, request: Request<Body>) -> Answer {
        read(self.router.clone().oneshot(request).await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(post(path, &body)).await
    }

    /// A success, as JSON.
    pub async fn ok(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body.clone()).await;
        assert_eq!(answer.status, 200, "{body} gave {}", answer.text);
        answer.json()
    }

    /// Lets a gated device make so many steps.
    pub fn step(&self, steps: usize) {
        let gate = self.gate.as_ref().expect("not gated").lock().unwrap();
        // An engine that has ended makes no step.
        for _ in 0..steps {
            let _ = gate.send(());
        }
    }

    pub async fn status(&self) -> Status {
        let engine = self.engine.clone();
        tokio::task::spawn_blocking(move || engine.report().unwrap().0).await.unwrap()
    }

    /// The text of `/metrics`, after the server has read the engine's state again.
    pub async fn metrics(&self) -> String {
        tokio::time::sleep(Duration::from_millis(120)).await;
        self.send(get("/metrics")).await.text
    }

    /// Waits until the engine holds nothing but its cache and every place is free.
    pub async fn settles(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status().await;
            let used = status.pages_used.iter().sum::<usize>();
            let places = self.app.places_taken();
            if (status.running, status.waiting, used, places) == (0, 0, 0, 0) {
                return;
            }
            assert!(Instant::now() < deadline, "{status:?}, {places} places taken");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A number in the text of `/metrics`.
pub fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Waits until a condition holds that other threads bring about.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub fn chat(text: &str) -> Value {
    json!({"model": "toy", "messages": [{"role": "user", "content": text}], "max_tokens": 24, "seed": 5})
}

pub fn completion(text: &str) -> Value {
    json!({"model": "toy", "prompt": text, "max_tokens": 24, "seed": 5})
}

/// A body with more members.
pub fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Reads a response, which may be a stream, to its end.
pub async fn read_any(response: Response<Body>) {
    response.into_body().collect().await.unwrap();
}
