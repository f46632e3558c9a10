//! Windows onto payloads that wait to be read, and onto granted ranges of regions.
//!
//! A window lets only the other end of one queue pair access the memory that it is bound to. soft-RoCE checks the
//! bounds of the registration that a window is bound to, not the window's own; so a grant has a registration of exactly
//! its range. A payload's window lies in memory whose other bytes are for the same peer, or in a region that was sent
//! from.

use core::ops::Range;
use std::collections::VecDeque;
use std::sync::Arc;

use pronto_core::fabric::{GrantId, WrId};

use crate::error::VerbsError;
use crate::pool::PoolBuffer;
use crate::sys::{Domain, MemoryRegion, MemoryWindow};

/// Maximum number of payloads of one queue pair that wait to be read.
pub(crate) const MOST: u32 = 32;

/// A payload that waits to be read.
#[derive(Debug)]
pub(crate) struct Lent {
    pub(crate) wr: WrId,
    /// Key under which its window is bound.
    pub(crate) key: u32,
    /// True once the peer has reported that it is done.
    pub(crate) closing: bool,
    /// Memory of the payload, held until the peer is done.
    pub(crate) _memory: Arc<MemoryRegion>,
    /// Copy of the payload, if it was copied.
    pub(crate) _copy: Option<PoolBuffer>,
}

/// One window; `lent` comes after it, since the window must end first.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) window: MemoryWindow,
    pub(crate) lent: Option<Lent>,
}

/// The windows onto payloads.
#[derive(Debug)]
pub(crate) struct Windows {
    all: Vec<Window>,
    free: VecDeque<u16>,
}

impl Windows {
    pub(crate) fn new(domain: &Arc<Domain>, count: u32) -> Result<Self, VerbsError> {
        let one = |_| MemoryWindow::new(domain).map(|window| Window { window, lent: None });
        let all = (0..count).map(one).collect::<Result<Vec<_>, _>>()?;
        let free = (0..u16::try_from(all.len()).unwrap_or(u16::MAX)).collect();
        Ok(Self { all, free })
    }

    /// Takes the unused window that was used longest ago. Returns it with its number.
    pub(crate) fn take(&mut self) -> Option<(u16, &mut Window)> {
        let number = self.free.pop_front()?;
        Some((number, self.all.get_mut(usize::from(number))?))
    }

    /// Returns whether a window is unused.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Processes the peer's report that it has read the payload of window `number`. Returns the key to be ended, or
    /// `None` if the window has no payload or was reported before.
    pub(crate) fn begin_closing(&mut self, number: u16) -> Option<u32> {
        let lent = self.all.get_mut(usize::from(number))?.lent.as_mut()?;
        (!core::mem::replace(&mut lent.closing, true)).then_some(lent.key)
    }

    /// Frees a window whose binding has ended. Returns the work request that is complete.
    pub(crate) fn give_back(&mut self, number: u16) -> Option<WrId> {
        let lent = self.all.get_mut(usize::from(number))?.lent.take()?;
        self.free.push_back(number);
        Some(lent.wr)
    }

    /// Ends all windows. Returns the work requests of unread payloads.
    pub(crate) fn clear(&mut self) -> Vec<WrId> {
        self.free.clear();
        let unread = |Window { window, lent }| {
            drop(window);
            lent.map(|lent: Lent| lent.wr)
        };
        self.all.drain(..).filter_map(unread).collect()
    }
}

/// A grant. The window comes first: it must end before what it is bound to.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) id: GrantId,
    /// `None` for a grant of no bytes.
    pub(crate) _window: Option<MemoryWindow>,
    pub(crate) memory: Option<Arc<MemoryRegion>>,
}

impl Granted {
    /// Returns the granted range of the region.
    pub(crate) fn range(&self) -> Range<usize> {
        self.memory.as_ref().map_or(0..0, |memory| memory.range().clone())
    }
}
