//! Sockets: accepts connections, limits their number and their idle time, and closes them after a drain.

use crate::app::{self, App, Phase};
use crate::config::ServerConfig;
use crate::error::ServerError;
use crate::service::Service;
use crate::tls;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;

/// A server that listens. Connections wait in the system's backlog until `run`.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
}

/// Controls a running server; clones control the same server.
#[derive(Clone)]
pub struct ServerHandle(Arc<App>);

impl ServerHandle {
    /// The model is loaded: serve.
    pub fn ready(&self, service: Arc<Service>) {
        self.0.ready(service);
    }

    /// Refuse new requests, finish those that run, then return from `run`.
    pub fn drain(&self) {
        self.0.drain();
    }

    /// Requests that are not answered to the end.
    pub fn busy(&self) -> usize {
        self.0.busy.count()
    }
}

/// How long connections have to close after the last answer.
const CLOSING_MAX: Duration = Duration::from_secs(2);
/// Wait after a failed accept (no file descriptors, say), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    /// Opens the port and reads the certificate.
    pub async fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let address = SocketAddr::new(config.host, config.port);
        let listener = TcpListener::bind(address).await.map_err(|error| ServerError::Bind { address, error })?;
        Ok(Self { app: App::new(config), listener, tls })
    }

    /// The address on which it listens, with the port that the system chose.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// A handle to drain the server with.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(self.app.clone())
    }

    /// Serves until a drain is over.
    pub async fn run(self) {
        let Self { app, listener, tls } = self;
        let router = app::router(app.clone());
        let connections = Arc::new(Semaphore::new(app.config.limits.connections_max));
        let drained = app.drained();
        tokio::pin!(drained);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &connections) => accepted,
                () = &mut drained => break,
            };
            let Some((stream, permit)) = accepted else { continue };
            let connection = Connection { app: app.clone(), router: router.clone(), tls: tls.clone(), permit };
            tokio::spawn(connection.serve(stream));
        }
        drop(listener);
        let all = u32::try_from(app.config.limits.connections_max).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(CLOSING_MAX, connections.acquire_many(all)).await;
    }
}

/// The next connection, once there is room for one.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    // The semaphore is never closed.
    let permit = room.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "a connection was not accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

struct Connection {
    app: Arc<App>,
    router: Router,
    tls: Option<TlsAcceptor>,
    permit: OwnedSemaphorePermit,
}

/// Counts open connections.
struct Counted(Arc<App>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        self.app.connections.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(self.app.clone());
        // Tokens are small packets that must be sent at once.
        let _ = stream.set_nodelay(true);
        let idle = self.app.config.limits.idle_time_max;
        match &self.tls {
            None => self.http(stream).await,
            Some(tls) => match tokio::time::timeout(idle, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.http(stream).await,
                Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
                Err(_) => tracing::debug!("no TLS in time"),
            },
        }
        drop(self.permit);
    }

    async fn http<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let idle = self.app.config.limits.idle_time_max;
        // A client that reads nothing blocks its connection for this long at most.
        let mut stream = TimeoutWriter::new(stream);
        stream.set_timeout(Some(idle));
        let stream: Pin<Box<TimeoutWriter<S>>> = Box::pin(stream);
        let service = TowerToHyperService::new(self.router.clone());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(idle).max_buf_size(HEAD_BYTES_MAX);
        // A balancer leads a client that connects again to another server. So a drain closes a connection as soon as it has no
        // answer to finish, and a connection that comes later, to ask `/ready` say, gets one answer.
        let late = matches!(self.app.phase(), Phase::Draining);
        http.keep_alive(!late);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.app.closing(late) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Bytes of a request's head, and of what is read ahead of a body.
const HEAD_BYTES_MAX: usize = 64 << 10;
