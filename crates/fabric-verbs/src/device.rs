//! A device's port, with what all connections over it share.

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

/// Registered memory for long payloads, bytes at most, unless told otherwise.
const POOL_BUDGET: usize = 64 << 20;

/// An open device and one of its ports. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) shared: Arc<Shared>,
}

/// What the connections of one port share.
pub(crate) struct Shared {
    pub(crate) port: PortAddress,
    receives: Mutex<Arc<Receives>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) regions: Regions,
    pub(crate) domain: Arc<Domain>,
    /// What tells it from another device that has its name later.
    identity: Option<u64>,
    queue_pairs: Mutex<HashMap<u32, Weak<Alive>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {} ({})", self.domain.context().name(), self.port.port, self.port.gid)
    }
}

/// Where on this machine a device is used, as whoever knows the machine decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The completion vector that events come by, below the number that the device has (ibv_create_cq(3)); one beyond counts as 0.
    pub completion_vector: u32,
    /// The NUMA node that memory for the device comes from; none: of whoever touches it first.
    pub memory_node: Option<u32>,
}

/// What a device has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Regions registered so far.
    pub regions_registered: u64,
    /// Bytes of the pool for long payloads that are registered.
    pub pool_bytes: u64,
    /// Receives that connections may count on, of the shared receive queue that new connections take from.
    pub receives_promised: u64,
    /// Receives of that queue that connections may have kept when they ended; beyond 1,024 the next connection gets a fresh queue.
    pub receives_doubtful: u64,
}

/// A registration by itself; ended when dropped.
#[derive(Debug)]
pub struct Registration(#[expect(dead_code, reason = "held, not read")] Arc<MemoryRegion>);

impl Device {
    /// The port that has this IP address: RoCE ports have those of their network devices.
    ///
    /// # Errors
    /// No library, no device, none with that address, or one that cannot be set up.
    pub fn for_address(address: IpAddr) -> Result<Self, VerbsError> {
        Self::for_address_at(address, |_, _| Place::default())
    }

    /// The same; `place` is told the device's name and how many completion vectors it has, and says where it is used.
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
            // RoCE has two encapsulations under the same address; the second goes over UDP and is what is in use.
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

    /// The device's name.
    pub fn name(&self) -> &str {
        self.shared.domain.context().name()
    }

    /// Whether the system still has it. One that was deleted says nothing, serves its connections no more, and is held up in
    /// its removal until the last clone of this value and the last of its links are dropped.
    pub fn is_present(&self) -> bool {
        let found = identity(self.shared.domain.context());
        found.is_some() && found == self.shared.identity
    }

    /// Where it is used.
    pub fn place(&self) -> Place {
        self.shared.domain.place()
    }

    /// Why memory for it comes from anywhere although a node was asked for, if so (mbind(2)).
    pub fn memory_refused(&self) -> Option<Errno> {
        self.shared.domain.memory_refused()
    }

    /// What was counted so far.
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

    /// Everything that is registered with it through this value, and what peers may do with it.
    pub fn registrations(&self) -> Vec<Registered> {
        self.shared.domain.registrations()
    }

    /// Registers a range of send memory by itself, until the result is dropped: what queue pairs do ahead of need, for those who
    /// want to know what it costs.
    ///
    /// # Errors
    /// The range lies outside, or cannot be pinned.
    pub fn register(&self, memory: &Arc<Mapping>, range: Range<usize>) -> Result<Registration, FabricError> {
        let bytes = PinnedBytes::Mapped(Arc::clone(memory));
        MemoryRegion::register(&self.shared.domain, bytes, range, Access::Windows).map(Registration)
    }

    /// Readable when the device has something to say: then call [`take_events`](Self::take_events).
    pub fn events(&self) -> BorrowedFd<'_> {
        self.shared.domain.context().events()
    }

    /// Hears the device out: connections that it says are broken find that at their next poll. Gives the number of
    /// events, and whether the device is gone.
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

    /// Returns the receives that a new connection takes from. Connections that end may keep some of them, so a worn queue is
    /// replaced; it ends with the last of its connections.
    pub(crate) fn receives(&self) -> Arc<Receives> {
        let mut current = self.current_receives();
        let is_worn = current.account().is_worn();
        // Where the device has no further queue, the worn one goes on as long as it has receives left.
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

/// The number of the folder in sysfs that a device is opened by, which no other one has had since the system started. It goes
/// first when the device does; the device's own stays until the last has closed it.
fn identity(context: &Context) -> Option<u64> {
    let path = format!("/sys/class/infiniband_verbs/{}", context.character_device());
    fs::metadata(path).ok().map(|folder| folder.ino())
}

/// Whether an address of a port is of the second RoCE encapsulation, or of InfiniBand, which has but one.
fn is_routable(context: &Context, port: &PortAddress) -> bool {
    let (name, number, index) = (context.name(), port.port, port.gid_index);
    let path = format!("/sys/class/infiniband/{name}/ports/{number}/gid_attrs/types/{index}");
    fs::read_to_string(path).is_ok_and(|kind| !kind.contains("v1"))
}
