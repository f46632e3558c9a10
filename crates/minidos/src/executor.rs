//! A small executor with one thread. It runs the continuations of calls for whose reply no thread waits.
//!
//! A home that demands a page does not wait for the reply. When the reply arrives, its future is woken, and this thread
//! runs the continuation. The thread only ever waits for the next future.

use core::pin::Pin;
use core::task::{Context, Waker};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

type BoxedFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Handle that submits futures. The thread ends when this is dropped and no future is left.
#[derive(Debug)]
pub(crate) struct Executor(Sender<Arc<Slot>>);

/// A future, and the queue that it enters when it is woken.
struct Slot {
    future: Mutex<Option<BoxedFuture>>,
    ready: Sender<Arc<Self>>,
}

impl core::fmt::Debug for Slot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Slot")
    }
}

impl Executor {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (ready, queue) = channel();
        std::thread::Builder::new().name("minidos-exec".into()).spawn(move || run(&queue))?;
        Ok(Self(ready))
    }

    /// Runs `future` to its end, concurrently with all others.
    pub(crate) fn send(&self, future: impl Future<Output = ()> + Send + 'static) {
        let future = Mutex::new(Some(Box::pin(future) as BoxedFuture));
        Arc::new(Slot { future, ready: self.0.clone() }).wake();
    }
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        let ready = self.ready.clone();
        // This cannot fail while a waker exists: the thread ends with the last sender.
        let _ = ready.send(self);
    }
}

fn run(queue: &Receiver<Arc<Slot>>) {
    while let Ok(slot) = queue.recv() {
        let waker = Waker::from(Arc::clone(&slot));
        let mut boxed = slot.future.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = boxed.as_mut()
            && future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            *boxed = None;
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
    fn a_pending_future_blocks_no_other_and_continues_when_woken() {
        let executor = Executor::start().unwrap();
        let (sender, received) = channel();
        let (parked, waker) = channel();
        let later = sender.clone();
        let mut polled = false;
        executor.send(async move {
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
        executor.send(async move { sender.send("other").unwrap() });
        assert_eq!(received.recv_timeout(Duration::from_secs(10)), Ok("other"));
        waker.wake();
        assert_eq!(received.recv_timeout(Duration::from_secs(10)), Ok("woken"));
    }
}
