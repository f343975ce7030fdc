//! A body of any bytes is a request or a 4xx.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vosti_server::UnknownFields;
use vosti_server::api::body::{Body, parse};
use vosti_server::api::chat::ChatRequest;
use vosti_server::api::completions::CompletionRequest;
use vosti_server::api::anthropic::MessagesRequest;
use vosti_server::api::responses::ResponsesRequest;
use vosti_server::api::tokenize::{DetokenizeRequest, TokenizeRequest};

fn reads<T: Body>(bytes: &[u8]) {
    for unknown in [UnknownFields::Refuse, UnknownFields::Warn] {
        if let Err(error) = parse::<T>(bytes, unknown) {
            assert!(error.status.is_client_error());
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    reads::<ChatRequest>(bytes);
    reads::<CompletionRequest>(bytes);
    reads::<TokenizeRequest>(bytes);
    reads::<DetokenizeRequest>(bytes);
    reads::<ResponsesRequest>(bytes);
    reads::<MessagesRequest>(bytes);
});
