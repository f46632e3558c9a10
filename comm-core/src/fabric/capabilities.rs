//! The capabilities of a connection, so that its users need not know the provider.

/// The capabilities of one connection, which are constant while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Human-readable name of the provider, also in reports: `shm`, `tcp`, `verbs`, `sim`.
    pub provider: &'static str,
    /// Longest payload of a message, bytes.
    pub max_payload: u32,
    /// Maximum number of messages that this side can receive before it processes any: the receive depth.
    pub receive_depth: u32,
    /// Maximum number of messages that the other side can receive before it processes any.
    pub send_depth: u32,
    /// True if polling and posting make no system call.
    pub polls_without_syscalls: bool,
    /// True if a posted message is visible to the peer before its doorbell, which then only wakes a sleeper. Otherwise a doorbell costs much
    /// more than a post.
    pub visible_when_posted: bool,
    /// True if payloads from a [`super::Region`] are not copied into send memory.
    pub by_reference: bool,
    /// Longest payload that the provider copies while posting ([`super::Gather::Short`]), bytes: at least 40.
    pub copies: u32,
    /// True if memory that is made ready is locked, so that its amount may be limited.
    pub pins_memory: bool,
    /// True if reclaimed memory is ready again as soon as it is touched.
    pub ready_when_touched: bool,
    /// Support for one-sided operations.
    pub one_sided: OneSided,
}

/// The support for one-sided operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSided {
    /// The provider has no one-sided operations.
    None,
    /// The provider has one-sided operations.
    Supported {
        /// True if operations complete while the target makes no call.
        passive_target: bool,
        /// The accesses with respect to which atomic operations are atomic.
        atomics: AtomicScope,
        /// The strength of a revocation.
        revocation: Revocation,
    },
}

/// The accesses with respect to which a fabric's atomic operations are atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicScope {
    /// Only other operations of the fabric. The owner of the memory must use the fabric, too.
    Fabric,
    /// Operations of the fabric and atomic instructions of the memory's owner.
    Global,
}

/// The strength of a revocation against a peer that breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The target or its device refuses further access.
    Enforced,
    /// The peer's provider refuses further access; a hostile process of the same user could keep its mapping.
    Cooperative,
}
