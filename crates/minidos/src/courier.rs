//! Runs what follows on answers that nobody waits for: a small executor with one thread.
//!
//! A home that demands a page goes on with other things; when the answer comes, its future is woken, and this thread
//! runs what is to be done then. It waits for nothing but the next future.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

type Errand = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where futures are handed in. The thread ends when this is dropped and no future is left.
#[derive(Debug)]
pub(crate) struct Courier(Sender<Arc<Slot>>);

/// A future, and where it queues when it is woken.
struct Slot {
    errand: Mutex<Option<Errand>>,
    ready: Sender<Arc<Self>>,
}

impl core::fmt::Debug for Slot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Slot")
    }
}

impl Courier {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (ready, queue) = channel();
        std::thread::Builder::new().name("minidos-courier".into()).spawn(move || run(&queue))?;
        Ok(Self(ready))
    }

    /// Runs `errand` to its end, beside all others.
    pub(crate) fn send(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let errand = Mutex::new(Some(Box::pin(errand) as Errand));
        Arc::new(Slot { errand, ready: self.0.clone() }).wake();
    }
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        let ready = self.ready.clone();
        // The thread is there as long as anybody can wake: it ends with the last sender.
        let _ = ready.send(self);
    }
}

fn run(queue: &Receiver<Arc<Slot>>) {
    while let Ok(slot) = queue.recv() {
        let waker = Waker::from(Arc::clone(&slot));
        let mut errand = slot.errand.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = errand.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *errand = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::future::poll_fn;
    use core::task::Poll;
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_future_that_waits_holds_up_no_other_and_runs_on_when_woken() {
        let courier = Courier::start().unwrap();
        let (tell, told) = channel();
        let (parked, waker) = channel();
        let later = tell.clone();
        let mut polled = false;
        courier.send(async move {
            poll_fn(|context| {
                if core::mem::replace(&mut polled, true) {
                    return Poll::Ready(());
                }
                parked.send(context.waker().clone()).unwrap();
                Poll::Pending
            })
            .await;
            later.send("woken").unwrap();
        });
        let waker = waker.recv_timeout(Duration::from_secs(10)).unwrap();
        courier.send(async move { tell.send("other").unwrap() });
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok("other"));
        waker.wake();
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok("woken"));
    }
}
