//! `vosti serve`: listens at once, loads the model, serves until a signal, drains. A second signal ends it.

use super::arguments::{LogFormat, Serve, UnknownFields};
use super::traces::Traces;
use super::{Outcome, interrupt, open};
use crate::catalogue;
use crate::deployment::DeployOptions;
use crate::fetch::repository::Repository;
use anyhow::{Context, Result};
use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use vosti_engine::handle::EngineThread;
use vosti_engine::{EngineHandle, Policy};
use vosti_server::cors::Origins;
use vosti_server::{Identity, Limits, PageBytes, Server, ServerConfig, ServerHandle, Service, TlsFiles};
use vosti_wiring::{page_bytes, state_bytes};

/// Threads that speak HTTP; the work is in the engine.
const HTTP_THREADS: usize = 2;

pub fn run(arguments: &Serve) -> Result<Outcome> {
    log(arguments);
    let traces = Traces::start(arguments.otlp_endpoint.as_deref())?;
    let config = config(arguments, traces.are_sent())?;
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let (keys, name) = (config.api_keys.len(), config.model_names[0].clone());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(HTTP_THREADS).thread_name("vosti-http").enable_all().build()?;
    let server = runtime.block_on(Server::bind(config))?;
    let address = server.address().context("the socket has no address")?;
    let handle = server.handle();
    drain_at_signal(&handle);
    let serving = runtime.spawn(server.run());
    tell!("listening    {scheme}://{address} (503 until the model is loaded)");

    let (service, engine, thread) = load(arguments)?;
    tell!("sampling     {}, unless a request says otherwise", service.defaults);
    // A script may wait for the line below, and its next request must find the model.
    handle.ready(service);
    tell!("serving      {name} at {scheme}://{address}/v1, {}", access(keys));
    let ended = runtime.block_on(async {
        let mut engine_ended = tokio::task::spawn_blocking(move || thread.join());
        tokio::select! {
            _ = serving => {
                engine.drain();
                engine_ended.await
            }
            ended = &mut engine_ended => ended,
        }
    });
    // A thread that never ends must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    drop(traces);
    match ended? {
        Ok(Ok(())) => Ok(Outcome::Done),
        Ok(Err(error)) => Err(error).context("the engine ended"),
        Err(_) => anyhow::bail!("the engine's thread panicked; this is a bug, please report it"),
    }
}

fn access(keys: usize) -> String {
    match keys {
        0 => "no API key needed".into(),
        1 => "with 1 API key".into(),
        n => format!("with {n} API keys"),
    }
}

fn drain_at_signal(handle: &ServerHandle) {
    let handle = handle.clone();
    interrupt::on_first(move || {
        handle.drain();
        let busy = handle.busy();
        tell!("vosti: finishing {busy} requests; interrupt again to stop at once");
    });
}

/// Loads the model and starts its engine.
fn load(arguments: &Serve) -> Result<(Arc<Service>, EngineHandle, EngineThread)> {
    let mut flags = arguments.engine.clone();
    // One core is for HTTP, tokenizing and grammars.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    flags.hardware.threads.get_or_insert((cores - 1).max(1));
    let sequences = Policy::default().running_max;
    let pool = open::asked(&flags, open::any(sequences));
    let options = DeployOptions { pool, ..open::options(&flags.hardware)? };
    let deployment = open::load_with_text(&flags.model, &options)?;
    let engine = open::engine_for_any(&deployment, &flags, sequences)?;
    open::banner(&deployment, &engine);
    let program = deployment.program();
    let pages = page_bytes(program).into_iter().zip(state_bytes(program));
    let identity = Identity {
        fingerprint: deployment.fingerprint().to_string(),
        arithmetic: deployment.arithmetic(),
        vocab: program.vocab,
        context: program.context as usize,
        running_max: engine.policy().running_max,
        pages: pages.map(|(all, state)| PageBytes { all, state }).collect(),
    };
    let text = deployment.text()?;
    let (engine, thread) = EngineHandle::spawn(engine)?;
    let service = Service::new(engine.clone(), text.clone(), identity, arguments.defaults.of(&deployment)?)?;
    Ok((Arc::new(service), engine, thread))
}

fn config(arguments: &Serve, traces: bool) -> Result<ServerConfig> {
    let environment = std::env::var("VOSTI_API_KEY").ok();
    let keys = arguments.api_key.iter().cloned().chain(environment).filter(|key| !key.is_empty());
    let tls = arguments.tls_cert.clone().zip(arguments.tls_key.clone());
    let mut model_names = arguments.served_model_name.clone();
    if model_names.is_empty() {
        model_names.push(name(&arguments.engine.model));
    }
    Ok(ServerConfig {
        host: arguments.host,
        port: arguments.port,
        model_names,
        api_keys: keys.collect(),
        tls: tls.map(|(certificates, key)| TlsFiles { certificates, key }),
        limits: Limits {
            answers_max: Policy::default().running_max + arguments.max_queue,
            connections_max: arguments.max_connections as usize,
            body_bytes_max: usize::try_from(arguments.max_body_size).unwrap_or(usize::MAX),
            choices_max: arguments.max_choices,
            request_time_max: Duration::from_secs(arguments.request_timeout),
            idle_time_max: Duration::from_secs(arguments.idle_timeout),
        },
        log_prompts: arguments.log_prompts,
        unknown_fields: match arguments.unknown_fields {
            UnknownFields::Refuse => vosti_server::UnknownFields::Refuse,
            UnknownFields::Warn => vosti_server::UnknownFields::Warn,
        },
        trust_chat_template: arguments.trust_request_chat_template,
        cors_origins: Origins::parse(&arguments.cors_origin).context("--cors-origin")?,
        traces,
    })
}

/// The model's default name in the API: a name of the catalogue or of a hub unchanged, a path without folders and `.gguf`.
fn name(model: &str) -> String {
    let path = Path::new(model);
    if catalogue::knows(model) || (!path.exists() && model.parse::<Repository>().is_ok()) {
        return model.to_string();
    }
    let stem = if path.extension().is_some_and(|e| e == "gguf") { path.file_stem() } else { path.file_name() };
    stem.map_or_else(|| model.to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// Logs Vosti's own events only: events of the HTTP libraries may contain text of a request.
fn log(arguments: &Serve) {
    let level = match arguments.log_format {
        LogFormat::Off => LevelFilter::OFF,
        LogFormat::Text | LogFormat::Json => LevelFilter::INFO,
    };
    let ours = Targets::new().with_target("vosti", level);
    // The layer would print with a macro that panics what it could not write.
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false);
    let lines = lines.log_internal_errors(false);
    let layer = match arguments.log_format {
        LogFormat::Json => lines.json().boxed(),
        LogFormat::Text | LogFormat::Off => lines.with_ansi(false).boxed(),
    };
    // Only a second subscriber could fail this, and there is none.
    let _ = tracing_subscriber::registry().with(layer.with_filter(ours)).try_init();
    if !arguments.log_prompts {
        quiet_panics();
    }
}

/// Prints only the place of a panic: its message may contain a piece of a prompt.
fn quiet_panics() {
    panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
        tell!("vosti: a bug at {place}; please report it (--log-prompts shows the message)");
    }));
}
