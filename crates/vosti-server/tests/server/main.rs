//! The server from outside, with a device that has no model: requests without sockets, and sockets where they matter.

mod answers;
mod common;
mod conversations;
mod dashboards;
mod documents;
mod fields;
mod gaps;
mod hostile;
mod load;
mod ollama;
mod other_apis;
mod refusals;
mod resume;
mod sockets;
