//! A service as the handler of a message type.

use core::fmt::Display;
use std::sync::Mutex;

use pronto::{Builder, Request};
use tower::{Service, ServiceExt};

/// Registers a service as the async handler of the requests `M`.
///
/// Each request gets a clone of the service, awaits until that is ready, and calls it. So the limits of its layers are those of the handler:
/// a request that waits for a concurrency limit occupies a place of `Builder::max_futures`, and no thread. An error arrives as
/// `CallError::Handler`, which decodes to its text, a `String`. If the caller cancels the call or reaches its deadline, the service's
/// future is dropped. Layers with timers of tokio need `Builder::executor`.
pub fn serve<M, S>(builder: Builder, service: S) -> Builder
where
    M: Request,
    S: Service<M, Response = M::Reply> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Display + Send,
{
    // Handlers run concurrently, and few services are `Sync`.
    let service = Mutex::new(service);
    builder.handle_async(move |_, request: M| {
        let service = service.lock().expect("no clone panics").clone();
        async move { service.oneshot(request).await.map_err(|error| error.to_string()) }
    })
}
