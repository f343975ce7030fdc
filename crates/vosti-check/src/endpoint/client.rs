//! Sends requests to a server of the OpenAI API, and reads its texts, tokens and log-probabilities.
//!
//! Servers differ: the log-probabilities of `/v1/completions` come as three lists or as one list of objects, and some servers
//! have only chats. All of it becomes a [`Transcript`], which holds the numbers exactly as the server printed them.

use crate::CheckError;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transcript {
    pub text: String,
    /// Empty if the server gave no log-probabilities.
    pub tokens: Vec<Shown>,
    /// Prompt tokens that the server says came from its cache.
    pub cached: Option<u64>,
}

/// One token as printed: itself, its log-probability, and the likeliest tokens with theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub token: String,
    pub logprob: f64,
    pub top: Vec<(String, f64)>,
}

/// The route that the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Completions,
    Chat,
}

/// The request's parameters besides the prompt.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub tokens: usize,
    /// 0 is greedy.
    pub temperature: f32,
    pub seed: u64,
}

/// A server.
pub struct Client {
    agent: ureq::Agent,
    base: String,
    key: Option<String>,
    pub model: String,
    pub route: Route,
    /// The `system_fingerprint` of the first answer; empty if it has none.
    pub says: String,
    /// How often the server answered 429 or 503 and was asked again.
    pub full: AtomicU64,
}

/// How many of the likeliest tokens a request asks for, with their log-probabilities.
const TOP: usize = 5;

/// How long a request is repeated while the server is full.
const PATIENCE: Duration = Duration::from_secs(120);

impl Client {
    /// Finds the model's name, if none is given, and a route that answers. An error if the server answers neither route.
    pub fn open(url: &str, key: Option<String>, model: Option<String>) -> Result<Self, CheckError> {
        let base = url.trim_end_matches('/').trim_end_matches("/v1").to_string();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(CheckError::Url(url.into()));
        }
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_global(Some(Duration::from_secs(600)))
            .http_status_as_error(false)
            .max_idle_connections_per_host(64)
            .build();
        let agent = ureq::Agent::new_with_config(config);
        let mut client = Self {
            agent,
            base,
            key,
            model: model.clone().unwrap_or_default(),
            route: Route::Completions,
            says: String::new(),
            full: AtomicU64::new(0),
        };
        if model.is_none() {
            client.model = client.first_model()?;
        }
        client.says = client.choose_route()?;
        Ok(client)
    }

    fn first_model(&self) -> Result<String, CheckError> {
        let (status, body) = self.call("/v1/models", None)?;
        let name = body["data"][0]["id"].as_str().map(String::from);
        name.ok_or_else(|| self.refused("/v1/models", status, &body))
    }

    fn choose_route(&mut self) -> Result<String, CheckError> {
        let asked = Asked { tokens: 1, temperature: 0.0, seed: 1 };
        let mut refusal = None;
        for route in [Route::Completions, Route::Chat] {
            self.route = route;
            let (status, body) = self.call(self.path(), Some(&self.body("Hello", asked)))?;
            if status == 200 {
                let says = body["system_fingerprint"].as_str().unwrap_or_default();
                return Ok(says.to_string());
            }
            refusal.get_or_insert_with(|| self.refused(self.path(), status, &body));
        }
        Err(refusal.expect("two routes were tried"))
    }

    /// Sends a request and returns its answer; repeats it while the server is full.
    pub fn ask(&self, prompt: &str, asked: Asked) -> Result<Transcript, CheckError> {
        let body = self.body(prompt, asked);
        let start = Instant::now();
        loop {
            let (status, answer) = self.call(self.path(), Some(&body))?;
            match status {
                200 => return Ok(read(&answer)),
                429 | 503 if start.elapsed() < PATIENCE => {
                    self.full.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(300));
                }
                _ => return Err(self.refused(self.path(), status, &answer)),
            }
        }
    }

    fn path(&self) -> &'static str {
        match self.route {
            Route::Completions => "/v1/completions",
            Route::Chat => "/v1/chat/completions",
        }
    }

    fn body(&self, prompt: &str, asked: Asked) -> Value {
        let mut body = json!({
            "model": self.model, "max_tokens": asked.tokens, "temperature": asked.temperature, "seed": asked.seed,
        });
        match self.route {
            Route::Completions => {
                body["prompt"] = prompt.into();
                body["logprobs"] = TOP.into();
            }
            Route::Chat => {
                body["messages"] = json!([{ "role": "user", "content": prompt }]);
                body["logprobs"] = true.into();
                body["top_logprobs"] = TOP.into();
            }
        }
        body
    }

    /// The response's status and JSON; a body that is not JSON becomes a JSON string.
    fn call(&self, path: &str, body: Option<&Value>) -> Result<(u16, Value), CheckError> {
        let url = format!("{}{path}", self.base);
        let failed = |error: ureq::Error| CheckError::Http { url: url.clone(), reason: error.to_string() };
        let bearer = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let mut response = match body {
            Some(body) => {
                let request = self.agent.post(&url).header("content-type", "application/json");
                let request = bearer.iter().fold(request, |r, bearer| r.header("authorization", bearer));
                request.send(body.to_string())
            }
            None => {
                let request = self.agent.get(&url);
                bearer.iter().fold(request, |r, bearer| r.header("authorization", bearer)).call()
            }
        }
        .map_err(failed)?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(failed)?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    fn refused(&self, path: &str, status: u16, body: &Value) -> CheckError {
        let message = body["error"]["message"].as_str().map_or_else(|| body.to_string(), String::from);
        let says = message.chars().take(300).collect();
        CheckError::Refused { url: format!("{}{path}", self.base), status, says }
    }
}

/// Reads an answer of either route, log-probabilities in either shape.
fn read(answer: &Value) -> Transcript {
    let choice = &answer["choices"][0];
    let text = choice["text"].as_str().or(choice["message"]["content"].as_str()).unwrap_or_default();
    let logprobs = &choice["logprobs"];
    let tokens = match logprobs["content"].as_array() {
        Some(list) => list.iter().map(read_object).collect(),
        None => read_lists(logprobs),
    };
    let cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let cached = cached.or(answer["timings"]["cache_n"].as_u64());
    Transcript { text: text.into(), tokens, cached }
}

fn read_object(object: &Value) -> Shown {
    let pair = |o: &Value| (o["token"].as_str().unwrap_or_default().to_string(), number(&o["logprob"]));
    let (token, logprob) = pair(object);
    let top = object["top_logprobs"].as_array().into_iter().flatten().map(pair).collect();
    Shown { token, logprob, top }
}

fn read_lists(logprobs: &Value) -> Vec<Shown> {
    let list = |name: &str| logprobs[name].as_array().cloned().unwrap_or_default();
    let tops = list("top_logprobs");
    let pairs = list("tokens").into_iter().zip(list("token_logprobs")).enumerate();
    let shown = pairs.map(|(i, (token, logprob))| {
        let top = tops.get(i).and_then(Value::as_object).into_iter().flatten();
        let top = top.map(|(token, logprob)| (token.clone(), number(logprob))).collect();
        Shown { token: token.as_str().unwrap_or_default().into(), logprob: number(&logprob), top }
    });
    shown.collect()
}

/// A printed number; anything else becomes NaN, which equals nothing.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_logprobs_are_read_alike() {
        let lists = json!({ "choices": [{ "text": "ab", "logprobs": {
            "tokens": ["a", "b"], "token_logprobs": [-0.5, -1.25],
            "top_logprobs": [{ "a": -0.5, "c": -2.0 }, { "b": -1.25, "d": -3.0 }] } }] });
        let object = |token: &str, logprob: f64, other: &str, less: f64| {
            json!({ "token": token, "logprob": logprob, "top_logprobs": [
                { "token": token, "logprob": logprob }, { "token": other, "logprob": less }] })
        };
        let objects = json!({ "choices": [{ "message": { "content": "ab" }, "logprobs": {
            "content": [object("a", -0.5, "c", -2.0), object("b", -1.25, "d", -3.0)] } }],
            "usage": { "prompt_tokens_details": { "cached_tokens": 64 } } });
        let (lists, objects) = (read(&lists), read(&objects));
        assert_eq!(lists.tokens, objects.tokens);
        assert_eq!((lists.text, objects.cached), (objects.text, Some(64)));
        assert_eq!(lists.tokens.len(), 2);
    }

    #[test]
    fn an_answer_without_logprobs_is_a_text() {
        let transcript = read(&json!({ "choices": [{ "text": "x", "logprobs": null }] }));
        assert_eq!(transcript, Transcript { text: "x".into(), ..Transcript::default() });
    }
}
