//! A device's port, with the state that all connections over it share.

use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use std::collections::HashMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;
use pronto_core::fabric::FabricError;
use pronto_mapping::Mapping;

use crate::alive::Alive;
use crate::error::VerbsError;
use crate::pool::Pool;
use crate::receives::Receives;
use crate::regions::Regions;
use crate::sys::{
    Access, AsyncEvent, Context, Domain, Gid, MemoryRegion, PinnedBytes, PortAddress, Registered,
    active_ports,
};

/// Maximum registered memory for long payloads, bytes.
const POOL_BUDGET: usize = 64 << 20;

/// An open device and one of its ports. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
}

/// State shared by the connections of one port.
pub(crate) struct Shared {
    pub(crate) port: PortAddress,
    receives: Mutex<Arc<Receives>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) regions: Regions,
    pub(crate) domain: Arc<Domain>,
    /// Number that distinguishes this device from a later one with the same name.
    identity: Option<u64>,
    queue_pairs: Mutex<HashMap<u32, Weak<Alive>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} ({})", self.domain.context().name(), self.port.port, self.port.gid)
    }
}

/// Placement of a device's resources, chosen by the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Completion vector for events (ibv_create_cq(3)). A number that the device does not have counts as 0.
    pub completion_vector: u32,
    /// NUMA node of the device's memory. `None`: the node of the thread that first touches the memory.
    pub memory_node: Option<u32>,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Regions registered so far.
    pub regions_registered: u64,
    /// Registered bytes of the pool for long payloads.
    pub pool_bytes: u64,
    /// Receives promised to connections, in the shared receive queue that new connections use.
    pub receives_promised: u64,
    /// Receives of that queue that connections may have kept when they ended; from 1,024 on, the next connection gets a
    /// fresh queue.
    pub receives_doubtful: u64,
}

/// A single registration, ended when dropped.
#[derive(Debug)]
pub struct Registration(#[expect(dead_code, reason = "held, not read")] Arc<MemoryRegion>);

impl Device {
    /// Opens the port with this IP address; a RoCE port has those of its network device.
    ///
    /// # Errors
    /// The library or a device is missing, no port has the address, or the device cannot be set up.
    pub fn for_address(address: IpAddr) -> Result<Self, VerbsError> {
        Self::for_address_at(address, |_, _| Place::default())
    }

    /// Opens the port with this IP address, with a chosen placement. `place` gets the device's name and its number of
    /// completion vectors.
    ///
    /// # Errors
    /// As for [`for_address`](Self::for_address).
    pub fn for_address_at(
        address: IpAddr,
        place: impl FnOnce(&str, u32) -> Place,
    ) -> Result<Self, VerbsError> {
        let wanted = Gid::of(address.to_canonical());
        for context in Context::open_all()? {
            let ports = active_ports(&context);
            let of_version = |two: bool| {
                let fits = |port: &&PortAddress| port.gid == wanted && is_routable(&context, port) == two;
                ports.iter().find(fits)
            };
            // RoCE has two encapsulations under the same address; the second one uses UDP and is the usual one.
            if let Some(port) = of_version(true).or_else(|| of_version(false)) {
                let place = place(context.name(), context.completion_vectors());
                return Self::open(&context, *port, place);
            }
        }
        Err(VerbsError::NoPort(address))
    }

    fn open(context: &Arc<Context>, port: PortAddress, place: Place) -> Result<Self, VerbsError> {
        let identity = identity(context);
        let domain = Domain::new(context, place)?;
        let receives = Mutex::new(Receives::new(&domain)?);
        let pool = Pool::new(&domain, POOL_BUDGET)?;
        let queue_pairs = Mutex::default();
        let regions = Regions::default();
        let shared = Shared { port, receives, pool, regions, domain, identity, queue_pairs };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the device's name.
    pub fn name(&self) -> &str {
        self.shared.domain.context().name()
    }

    /// Returns whether this is soft-RoCE. It checks an access against the registration of the memory, and not against the bounds of a window:
    /// a peer that was granted a payload can read what else lies in the same registration, such as payloads for others.
    pub fn is_soft_roce(&self) -> bool {
        self.shared.domain.context().limits().is_soft_roce
    }

    /// Returns whether the device still exists. A deleted device reports nothing and no longer serves its connections.
    /// Its removal is delayed until the last clone of this value and the last of its links are dropped.
    pub fn is_present(&self) -> bool {
        let found = identity(self.shared.domain.context());
        found.is_some() && found == self.shared.identity
    }

    /// Returns the placement of the device's resources.
    pub fn place(&self) -> Place {
        self.shared.domain.place()
    }

    /// Returns the error that prevented memory from being allocated on the requested node, if any (mbind(2)).
    pub fn memory_refused(&self) -> Option<Errno> {
        self.shared.domain.memory_refused()
    }

    /// Returns the current counters.
    pub fn counters(&self) -> DeviceCounters {
        let receives = self.shared.current_receives();
        let account = receives.account();
        DeviceCounters {
            regions_registered: self.shared.regions.made(),
            pool_bytes: self.shared.pool.registered() as u64,
            receives_promised: account.promised() as u64,
            receives_doubtful: account.doubtful() as u64,
        }
    }

    /// Returns everything that is registered through this value, with the access that peers have.
    pub fn registrations(&self) -> Vec<Registered> {
        self.shared.domain.registrations()
    }

    /// Registers a range of send memory, until the result is dropped. Queue pairs do this ahead of need; use this
    /// function to measure its cost.
    ///
    /// # Errors
    /// The range lies outside the memory, or cannot be pinned.
    pub fn register(&self, memory: &Arc<Mapping>, range: Range<usize>) -> Result<Registration, FabricError> {
        let bytes = PinnedBytes::Mapped(Arc::clone(memory));
        MemoryRegion::register(&self.shared.domain, bytes, range, Access::Windows).map(Registration)
    }

    /// Returns the descriptor that becomes readable when the device has an event: then call
    /// [`take_events`](Self::take_events).
    pub fn events(&self) -> BorrowedFd<'_> {
        self.shared.domain.context().events()
    }

    /// Processes the device's events. Connections that it reports as broken fail at their next poll. Returns the number
    /// of events, and whether the device is gone.
    pub fn take_events(&self) -> (usize, bool) {
        let (mut count, mut gone) = (0, false);
        while let Some(event) = self.shared.domain.context().next_event() {
            count += 1;
            match event {
                AsyncEvent::QueuePairFailed(number) => {
                    if let Some(broken) = self.shared.queue_pairs().get(&number).and_then(Weak::upgrade) {
                        broken.lose();
                    }
                }
                AsyncEvent::DeviceGone => {
                    gone = true;
                    let all: Vec<_> = self.shared.queue_pairs().values().filter_map(Weak::upgrade).collect();
                    all.iter().for_each(|broken| broken.lose());
                }
                AsyncEvent::Other(_) => {}
            }
        }
        (count, gone)
    }
}

impl Shared {
    fn current_receives(&self) -> MutexGuard<'_, Arc<Receives>> {
        self.receives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the receive queue for a new connection. Ended connections may have kept some of its receives, so a worn
    /// queue is replaced. A replaced queue is freed with the last of its connections.
    pub(crate) fn receives(&self) -> Arc<Receives> {
        let mut current = self.current_receives();
        let is_worn = current.account().is_worn();
        // If the device has no further queue, the worn one is used as long as it has receives left.
        if is_worn && let Ok(fresh) = Receives::new(&self.domain) {
            *current = fresh;
        }
        Arc::clone(&current)
    }

    fn queue_pairs(&self) -> MutexGuard<'_, HashMap<u32, Weak<Alive>>> {
        self.queue_pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enlist(&self, number: u32, alive: &Arc<Alive>) {
        self.queue_pairs().insert(number, Arc::downgrade(alive));
    }

    pub(crate) fn delist(&self, number: u32) {
        self.queue_pairs().remove(&number);
    }
}

/// Returns the inode number of the sysfs folder by which a device is opened, which is unique since the system started.
/// A deletion removes this folder first; the device's own folder stays until the last user has closed the device.
fn identity(context: &Context) -> Option<u64> {
    let path = format!("/sys/class/infiniband_verbs/{}", context.character_device());
    fs::metadata(path).ok().map(|folder| folder.ino())
}

/// Returns whether an address of a port uses the second RoCE encapsulation, or InfiniBand, which has only one.
fn is_routable(context: &Context, port: &PortAddress) -> bool {
    let (name, number, index) = (context.name(), port.port, port.gid_index);
    let path = format!("/sys/class/infiniband/{name}/ports/{number}/gid_attrs/types/{index}");
    fs::read_to_string(path).is_ok_and(|kind| !kind.contains("v1"))
}
