//! What a connection can do, so that nobody needs to know which provider it is.

/// What one connection can do; constant while it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Provider's name for people and reports: `shm`, `tcp`, `verbs`, `sim`.
    pub provider: &'static str,
    /// Longest payload of a message, bytes.
    pub max_payload: u32,
    /// Messages that this side can receive before it takes any: the receive depth.
    pub receive_depth: u32,
    /// Messages that the other side can receive before it takes any.
    pub send_depth: u32,
    /// Whether polling and posting make no system call.
    pub polls_without_syscalls: bool,
    /// Whether payloads from a [`super::Region`] travel without being copied into send memory.
    pub by_reference: bool,
    /// Longest payload that the provider copies while posting ([`super::Gather::Short`]), bytes: at least 40.
    pub copies: u32,
    /// Whether memory that is made ready is locked: there may be little of it.
    pub pins_memory: bool,
    /// Whether memory that was taken back is ready again as soon as it is touched.
    pub ready_when_touched: bool,
    /// How one-sided operations are carried out.
    pub one_sided: OneSided,
}

/// How one-sided operations are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OneSided {
    /// Not at all.
    None,
    /// They are.
    Supported {
        /// Operations complete while the target makes no call.
        passive_target: bool,
        /// What atomic operations are atomic with.
        atomics: AtomicScope,
        /// What a revocation is worth.
        revocation: Revocation,
    },
}

/// What a fabric's atomic operations are atomic with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicScope {
    /// Other operations of the fabric only: the owner of the memory goes through the fabric as well.
    Fabric,
    /// The owner's own atomic instructions too.
    Global,
}

/// What a revocation is worth against a peer that does not play by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// The target or its device refuses further access.
    Enforced,
    /// The peer's provider refuses further access; a hostile process of the same user could keep its mapping.
    Cooperative,
}
