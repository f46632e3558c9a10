//! Whole calls that are counted, between two nodes in one thread.

use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;

use anyhow::Context as _;
use pronto_core::fabric::{ConnectionLimits, QueuePair};
use pronto_counts::pair::{Ends, LOOKS, Nobody, Pairs, Still};
use pronto_rpc::{Peer, Route};
use pronto_wire::Class;

use crate::message::{Ask32, Ask200, Echo32, Echo200, Told64};

/// Requests that are open at once where calls are pipelined.
const WINDOW: usize = 32;

/// Nothing waits so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A caller, and the callee that its waits carry along.
pub(crate) struct Pair<Q: QueuePair + 'static> {
    peer: Peer<Still<Q>>,
    host: Arc<Still<Q>>,
}

impl<Q: QueuePair + 'static> Pair<Q> {
    /// Two nodes over a link.
    ///
    /// # Errors
    /// If there is no link.
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

    /// One call with 32 bytes each way.
    ///
    /// # Errors
    /// If it fails, or brings back something else.
    pub(crate) fn call_32(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask32 { bytes: [byte; 32] })?;
        anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from what was sent");
        Ok(())
    }

    /// One call with 200 bytes each way.
    ///
    /// # Errors
    /// As [`Self::call_32`].
    pub(crate) fn call_200(&self, byte: u8) -> anyhow::Result<()> {
        let echo = self.peer.call(&Ask200 { bytes: [byte; 200] })?;
        anyhow::ensure!(echo.bytes == [byte; 200], "an echo differs from what was sent");
        Ok(())
    }

    /// One synchronous send of 64 bytes. Where its wait did not carry the callee along, that takes it in afterwards.
    ///
    /// # Errors
    /// If it does not complete.
    pub(crate) fn send_64(&self, byte: u8) -> anyhow::Result<()> {
        self.peer.notify_sync(&Told64 { bytes: [byte; 64] }, PATIENCE)?;
        self.host.carry(1);
        Ok(())
    }

    /// As many calls as are open at once where calls are pipelined: all requests, one turn of the callee, all answers.
    ///
    /// # Errors
    /// As [`Self::call_32`].
    pub(crate) fn window_32(&self, byte: u8) -> anyhow::Result<()> {
        let ask = Ask32 { bytes: [byte; 32] };
        let mut open: [_; WINDOW] = core::array::from_fn(|_| self.peer.start(&ask));
        for pending in &mut open {
            let pending = pending.as_mut().map_err(|error| anyhow::anyhow!("{error}"))?;
            let mut answer = pending.poll();
            if answer.is_none() {
                self.host.carry(LOOKS);
                answer = pending.poll();
            }
            let echo = answer.context("the callee has answered")??;
            anyhow::ensure!(echo.bytes == [byte; 32], "an echo differs from what was sent");
        }
        Ok(())
    }

    /// A turn of the caller's session when nothing has come.
    pub(crate) fn idle_turn(&self) {
        let session = self.peer.session();
        let progress = session.turn(1, || false, &mut Nobody, &*self.host);
        assert_eq!(progress.map(|progress| progress.moved), Some(0), "nothing has been sent");
    }

    /// A piece of the send ring taken, and given back unused.
    pub(crate) fn loan(&self) {
        drop(self.peer.session().loan(Class::Bulk, 4096, 0).expect("the ring is empty"));
    }
}
