//! Grants: a registration of exactly the granted range, with a window onto it for this peer alone.

use core::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;
use pronto_core::fabric::{
    FabricError, Grant, GrantError, GrantId, HeapMemory, OneSided, Region, RemoteRange, Rights,
};
use pronto_core::wait::BackOff;

use crate::error::VerbsError;
use crate::queue_pair::VerbsQueuePair;
use crate::sys::{Access, MemoryRegion, MemoryWindow, PinnedBytes, Rights as WindowRights, Verb};
use crate::windows::Granted;

/// Maximum number of simultaneous grants of one connection.
const MAX_GRANTS: usize = 4096;

impl VerbsQueuePair {
    /// Returns the granted ranges, each relative to its region. In addition, the peer can reach only payloads that wait
    /// to be read, each through a window of its own: no registration has a remote right.
    pub fn open_to_peer(&self) -> Vec<Range<usize>> {
        self.grants.iter().map(Granted::range).collect()
    }

    /// Grants the peer access to a range of a region.
    pub(crate) fn grant_range(
        &mut self,
        region: &Region,
        range: Range<u64>,
        rights: Rights,
    ) -> Result<Grant, GrantError> {
        let len = region.len() as u64;
        if range.start > range.end || range.end > len {
            return Err(GrantError::Range { start: range.start, end: range.end, len });
        }
        if self.capabilities.one_sided == OneSided::None {
            return Err(GrantError::Unsupported);
        }
        if self.grants.len() >= MAX_GRANTS {
            return Err(GrantError::TooMany(MAX_GRANTS));
        }
        let id = GrantId(self.next_grant);
        let mut is_copy = false;
        let granted = if range.is_empty() {
            Granted { id, _window: None, memory: None }
        } else {
            let at = usize::try_from(range.start).unwrap_or(usize::MAX)
                ..usize::try_from(range.end).unwrap_or(usize::MAX);
            let registered = self.register_granted(region, at.clone());
            let memory = match registered {
                // The kernel demands pages that can be written to for memory with windows (`ib_access_writable`, ib_verbs.h), whatever the
                // windows allow. Constants and mapped files may have none.
                Err(FabricError::System { errno })
                    if errno == Errno::EFAULT as i32 && region.is_read_only() =>
                {
                    is_copy = true;
                    self.register_granted(&copy_of(region, &at)?, 0..at.len())?
                }
                registered => registered?,
            };
            let window = self.bind(&memory, range.end - range.start, rights)?;
            Granted { id, _window: Some(window), memory: Some(memory) }
        };
        // A grant of no bytes has a key that no window has.
        let key = granted._window.as_ref().map_or(u64::MAX, |window| window.key().into());
        self.next_grant = self.next_grant.wrapping_add(1);
        self.grants.push(granted);
        let remote = RemoteRange { key, offset: 0, len: range.end - range.start };
        Ok(Grant { id, remote, is_copy })
    }

    fn register_granted(
        &self,
        region: &Region,
        range: Range<usize>,
    ) -> Result<Arc<MemoryRegion>, FabricError> {
        let bytes = PinnedBytes::Region(Arc::clone(region.memory()));
        MemoryRegion::register(&self.shared.domain, bytes, range, Access::Windows)
    }

    /// Ends a grant.
    pub(crate) fn end_grant(&mut self, grant: GrantId) -> Result<(), GrantError> {
        let at = self.grants.iter().position(|granted| granted.id == grant).ok_or(GrantError::Unknown)?;
        // Ends the window, and then the registration: both calls return when the device has done so.
        drop(self.grants.swap_remove(at));
        Ok(())
    }

    fn bind(
        &mut self,
        memory: &Arc<MemoryRegion>,
        len: u64,
        rights: Rights,
    ) -> Result<MemoryWindow, GrantError> {
        let system = |error: VerbsError| match error {
            VerbsError::System { errno, .. } => FabricError::System { errno: errno as i32 },
            _ => FabricError::System { errno: Errno::ENOMEM as i32 },
        };
        let mut window = MemoryWindow::new(&self.shared.domain).map_err(system)?;
        let offset = memory.range().start;
        let rights = WindowRights { read: rights.read, write: rights.write, atomic: rights.atomic };
        let asked = self.ask(Verb::Bind { window: &mut window, memory, offset, len, rights })?;
        let mut back_off = BackOff::default();
        while !self.has_settled(asked)? {
            #[expect(
                clippy::disallowed_methods,
                reason = "this waits for a device, which may be a kernel thread"
            )]
            back_off.pause_by(std::thread::yield_now, std::thread::sleep);
        }
        Ok(window)
    }
}

/// Copies a range of memory that cannot be registered.
fn copy_of(memory: &Region, range: &Range<usize>) -> Result<Region, GrantError> {
    let copy = Region::new(Arc::new(HeapMemory::new(range.len())));
    memory.copy_range_to(range.clone(), &copy).map_err(|_| GrantError::Unreadable)?;
    Ok(copy)
}
