//! Messages that follow from their stamp, so that a receiver can make each once more and compare.

use minidos::messages::{
    ExitOrigin, ExitRemote, Flush, FlushAck, FutexOperation, FutexOutcome, FutexRequest, FutexResponse,
    Invalidate, Invalidated, Kind, Migrate, MigrateBack, NodeInfo, PageGrant, PageReply, PageRequest,
    PageResponse, PageResponseShort, Pairing, Path, ProcessId, Registers, Release, Signal, Stamp, Stamped,
    TaskId, VmaInfoRequest, VmaInfoResponse, VmaOp, VmaOpRequest, VmaOpResponse,
};
use minidos::page::{Access, Address, PAGE_SIZE, Page, Version};
use minidos::random::Random;

/// A message whose fields all follow from its stamp and its address.
pub(super) trait Made: Stamped + PartialEq + Sized {
    /// Returns the message with that stamp about `address`, which is 0 unless its type, or that of its request, is ordered by address.
    fn made(stamp: Stamp, address: u64) -> Self;

    /// Returns the type of messages about `address`.
    fn kind_about(address: u64) -> Kind;

    /// Returns whether the message arrived as it was made.
    fn is_as_made(&self, address: u64) -> bool {
        *self == Self::made(self.stamp(), address)
    }
}

/// Number of pages that requests are about; replies for those in the upper half have no contents.
pub(super) const PAGES: usize = 128;

/// Returns the address of a page.
pub(super) fn address_of(page: usize) -> u64 {
    (page * PAGE_SIZE) as u64
}

/// Returns whether the reply for this page has its contents.
fn comes_with_contents(address: u64) -> bool {
    address < address_of(PAGES / 2)
}

/// Numbers that follow from a stamp and an address.
struct Numbers(Random);

impl Numbers {
    fn of(stamp: Stamp, address: u64) -> Self {
        let seed = stamp.sequence ^ u64::from(stamp.from) << 48;
        Self(Random::new(seed.wrapping_add(address.rotate_left(20))))
    }

    fn long(&mut self) -> u64 {
        self.0.bits()
    }

    fn short(&mut self) -> u32 {
        u32::try_from(self.0.bits() >> 32).expect("the upper half of 64 bits")
    }

    fn code(&mut self) -> i32 {
        self.short().cast_signed()
    }

    fn flag(&mut self) -> bool {
        self.0.bits() & 1 == 1
    }

    fn address(&mut self) -> Address {
        Address(self.long())
    }

    fn path(&mut self) -> Path {
        Path::new(&format!("/usr/lib/{:x}", self.long()))
    }

    fn registers(&mut self) -> Registers {
        Registers(core::array::from_fn(|_| self.long()))
    }

    fn page(&mut self) -> Box<Page> {
        let first = self.long();
        let mut page = Page::zeroed();
        let (words, _) = page.0.as_chunks_mut::<8>();
        for (word, number) in words.iter_mut().zip(0..) {
            *word = first.wrapping_add(number).to_le_bytes();
        }
        page
    }
}

/// Implements [`Made`]: the fields after `stamp` follow from the numbers.
macro_rules! made {
    ($($message:ident is $kind:ident($numbers:ident, $address:ident) { $($field:ident: $value:expr),* $(,)? })*) => {$(
        impl Made for $message {
            fn made(stamp: Stamp, $address: u64) -> Self {
                let mut numbers = Numbers::of(stamp, $address);
                let $numbers = &mut numbers;
                Self { stamp, $($field: $value),* }
            }

            fn kind_about(_: u64) -> Kind {
                Kind::$kind
            }
        }
    )*};
}

made! {
    NodeInfo is NodeInfo(n, _address) { pid: n.short(), frames: n.short(), page_size: n.short() }
    Migrate is TaskMigrate(n, _address) {
        process: ProcessId(n.short()),
        task: TaskId(n.short()),
        hop: n.short(),
        memory_map: core::array::from_fn(|_| n.long()),
        program: n.path(),
        registers: n.registers(),
    }
    Pairing is TaskPairing(n, _address) { process: ProcessId(n.short()), task: TaskId(n.short()), remote: TaskId(n.short()) }
    MigrateBack is TaskMigrateBack(n, _address) {
        process: ProcessId(n.short()),
        task: TaskId(n.short()),
        remote: TaskId(n.short()),
        registers: n.registers(),
    }
    ExitOrigin is TaskExitOrigin(n, _address) { process: ProcessId(n.short()), tasks: n.short(), code: n.code() }
    ExitRemote is TaskExitRemote(n, _address) { process: ProcessId(n.short()), task: TaskId(n.short()), code: n.code() }
    VmaInfoRequest is VmaInfoRequest(n, _address) { process: ProcessId(n.short()), task: TaskId(n.short()), address: n.address() }
    VmaInfoResponse is VmaInfoResponse(n, _address) {
        mapped: n.flag(),
        start: n.address(),
        length: n.long(),
        writable: n.flag(),
        offset: n.long(),
        path: n.path(),
    }
    VmaOpRequest is VmaOpRequest(n, _address) {
        process: ProcessId(n.short()),
        task: TaskId(n.short()),
        operation: VmaOp::Map,
        address: n.address(),
        length: n.long(),
        offset: n.long(),
        path: n.path(),
    }
    VmaOpResponse is VmaOpResponse(n, _address) {
        process: ProcessId(n.short()),
        task: TaskId(n.short()),
        operation: VmaOp::Map,
        done: n.flag(),
        start: n.address(),
        length: n.long(),
    }
    PageRequest is RemotePageRequest(n, address) {
        task: TaskId(n.short()),
        address: address,
        access: if n.flag() { Access::Read } else { Access::Write },
        version: Version(n.long()),
    }
    Invalidate is PageInvalidateRequest(n, address) { address: address, version: Version(n.long()) }
    Invalidated is PageInvalidateResponse(_n, address) { address: Address(address) }
    Release is RemotePageRelease(n, _address) { address: n.address(), version: Version(n.long()) }
    FlushAck is RemotePageFlushAck(n, _address) { address: n.address() }
    FutexRequest is FutexRequest(n, address) {
        task: TaskId(n.short()),
        address: address,
        operation: if n.flag() { FutexOperation::Wait } else { FutexOperation::Wake },
        value: n.short(),
    }
    FutexResponse is FutexResponse(n, _address) {
        outcome: if n.flag() { FutexOutcome::Woken } else { FutexOutcome::Done },
        woken: n.short(),
    }
    Signal is Signal(n, _address) { process: ProcessId(n.short()), task: TaskId(n.short()), number: n.short() }
}

impl Made for Flush {
    fn made(stamp: Stamp, address: u64) -> Self {
        let mut numbers = Numbers::of(stamp, address);
        let grant = PageGrant { address: numbers.address(), version: Version(numbers.long()) };
        Self { stamp, ..Self::new(numbers.page(), grant) }
    }

    fn kind_about(_: u64) -> Kind {
        Kind::RemotePageFlush
    }
}

impl Made for PageReply {
    fn made(stamp: Stamp, address: u64) -> Self {
        let mut numbers = Numbers::of(stamp, address);
        let (address, version) = (Address(address), Version(numbers.long()));
        if comes_with_contents(address.0) {
            let page = PageResponse::new(numbers.page(), PageGrant { address, version });
            Self::Page(PageResponse { stamp, ..page })
        } else {
            Self::Short(PageResponseShort { stamp, address, version })
        }
    }

    fn kind_about(address: u64) -> Kind {
        if comes_with_contents(address) { Kind::RemotePageResponse } else { Kind::RemotePageResponseShort }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_bit_shows() {
        let stamp = Stamp { from: 2, sequence: 7 };
        let mut flush = Flush::made(stamp, 0);
        assert!(flush.is_as_made(0));
        flush.contents[4000] ^= 1;
        assert!(!flush.is_as_made(0));
        let mut signal = Signal::made(stamp, 0);
        assert!(signal.is_as_made(0));
        signal.set_stamp(Stamp { from: 2, sequence: 8 });
        assert!(!signal.is_as_made(0), "it has another position in its stream");
    }

    #[test]
    fn a_reply_about_another_page_shows() {
        let reply = PageReply::made(Stamp { from: 1, sequence: 0 }, address_of(3));
        assert_eq!(reply.kind(), PageReply::kind_about(address_of(3)));
        assert!(reply.is_as_made(address_of(3)) && !reply.is_as_made(address_of(4)));
    }

    #[test]
    fn pages_of_the_upper_half_come_without_contents() {
        let comes = |page| matches!(PageReply::made(Stamp::default(), address_of(page)), PageReply::Page(_));
        assert_eq!([0, PAGES / 2 - 1, PAGES / 2, PAGES - 1].map(comes), [true, true, false, false]);
    }
}
