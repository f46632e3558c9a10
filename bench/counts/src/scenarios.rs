//! Whole calls between two nodes in one thread.

use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;

use crate::pair::{Ends, Nobody, POLL_BATCH, Pairs, Still};
use anyhow::Context as _;
use pronto_core::fabric::{ConnectionLimits, QueuePair};
use pronto_rpc::{Peer, Route};
use pronto_wire::Class;

use crate::message::{Ask32, Ask200, Echo32, Echo200, Told64};

/// Number of requests that are open at a time in the pipelined scenario.
const WINDOW: usize = 32;

/// Longer than anything waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// A caller, and the callee, which runs during the caller's waits.
pub(crate) struct Pair<Q: QueuePair + 'static> {
    peer: Peer<Still<Q>>,
    host: Arc<Still<Q>>,
}

impl<Q: QueuePair + 'static> Pair<Q> {
    /// Connects two nodes by a link.
    ///
    /// # Errors
    /// The link cannot be made.
    pub(crate) fn new(
        link: impl FnOnce([ConnectionLimits; 2]) -> anyhow::Result<(Pairs<Q>, Pairs<Q>)>,
    ) -> anyhow::Result<Self> {
        let routes = vec![
            Route::inline(|_, ask: Ask32| Echo32 { bytes: ask.bytes }),
            Route::inline(|_, ask: Ask200| Echo200 { bytes: ask.bytes }),
            Route::inline_notification(|_, told: Told64| _ = black_box(told.bytes)),
        ];
        let (peer, host) = Ends::new(routes, link)?.carried();
        Ok(Self { peer, host })
    }

    /// Makes one call with 32 bytes in each direction.
    ///
    /// # Errors
    /// The call fails, or returns something else.
    pub(crate) fn call_32(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask32 { bytes: [byte; 32] })?;
        anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from the sent bytes");
        Ok(())
    }

    /// Makes one call with 200 bytes in each direction.
    ///
    /// # Errors
    /// As for [`Self::call_32`].
    pub(crate) fn call_200(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask200 { bytes: [byte; 200] })?;
        anyhow::ensure!(echo.bytes == [byte; 200], "an echo differs from the sent bytes");
        Ok(())
    }

    /// Sends 64 bytes synchronously. If the wait did not run the callee, the callee receives the message afterwards.
    ///
    /// # Errors
    /// The send does not complete.
    pub(crate) fn send_64(&self, byte: u8) -> anyhow::Result<()> {
        self.peer.notify_sync(&Told64 { bytes: [byte; 64] }, PATIENCE)?;
        self.host.carry(1);
        Ok(())
    }

    /// Makes [`WINDOW`] pipelined calls: all requests, one turn of the callee, all replies.
    ///
    /// # Errors
    /// As for [`Self::call_32`].
    pub(crate) fn window_32(&self, byte: u8) -> anyhow::Result<()> {
        let ask = Ask32 { bytes: [byte; 32] };
        let mut open: [_; WINDOW] = core::array::from_fn(|_| self.peer.start(&ask));
        for pending in &mut open {
            let pending = pending.as_mut().map_err(|error| anyhow::anyhow!("{error}"))?;
            let mut answer = pending.poll();
            if answer.is_none() {
                self.host.carry(POLL_BATCH);
                answer = pending.poll();
            }
            let echo = answer.context("the callee has replied")??;
            anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from the sent bytes");
        }
        Ok(())
    }

    /// Runs a turn of the caller's session in which nothing has come.
    pub(crate) fn idle_turn(&self) {
        let session = self.peer.session();
        let progress = session.turn(1, || false, &mut Nobody, &*self.host);
        assert_eq!(progress.map(|progress| progress.moved), Some(0), "nothing has been sent");
    }

    /// Takes a piece of the send ring, and returns it unused.
    pub(crate) fn loan(&self) {
        drop(self.peer.session().loan(Class::Bulk, 4096, 0).expect("the ring is empty"));
    }
}
