//! Permissions: the message types of this side that the peer may use. The node decides them for each link, before the link is installed, and
//! again when its rules change.

use alloc::boxed::Box;

use pronto_sync::OnceBox;
use pronto_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pronto_wire::TypeId;

const BITS: usize = u64::BITS as usize;

/// The types that a peer may use. Without a restriction: all.
#[derive(Debug, Default)]
pub struct Permissions {
    restricted: AtomicBool,
    /// One bit for each type of this side, allocated by the first restriction.
    permitted: OnceBox<Box<[AtomicU64]>>,
}

impl Permissions {
    /// Permits all types.
    pub fn permit_all(&self) {
        self.restricted.store(false, Ordering::Relaxed);
    }

    /// Permits the types whose number `permits` returns true for, and no others. The number of types, `types`, is the same in every call.
    pub fn permit_only(&self, types: usize, permits: impl Fn(usize) -> bool) {
        let made = || (0..types.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect();
        for (word, bits) in self.permitted.get_or_make(made).iter().enumerate() {
            let permitted = (0..BITS).filter(|bit| {
                let number = word * BITS + bit;
                number < types && permits(number)
            });
            bits.store(permitted.fold(0, |bits, bit| bits | (1 << bit)), Ordering::Relaxed);
        }
        // SYNC: orders nothing else: before a link is installed, the lock of the engine orders this before the link's messages. Of a message that
        // is handled while the rules change, either rules decide.
        self.restricted.store(true, Ordering::Relaxed);
    }

    /// Returns whether the peer may use a type. A type that this side does not have is not permitted under a restriction.
    #[inline(always)]
    pub fn permits(&self, type_id: TypeId) -> bool {
        !self.restricted.load(Ordering::Relaxed) || self.lists(type_id)
    }

    #[inline(never)]
    fn lists(&self, TypeId(number): TypeId) -> bool {
        let number = usize::from(number);
        let word = self.permitted.get().and_then(|words| words.get(number / BITS));
        word.is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (number % BITS)) != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_listed_types_are_permitted_under_a_restriction() {
        let permissions = Permissions::default();
        let permitted = || (0..140).filter(|number| permissions.permits(TypeId(*number))).count();
        assert_eq!(permitted(), 140);
        permissions.permit_only(130, |number| number % 64 == 1);
        assert!([1, 65, 129].into_iter().all(|number| permissions.permits(TypeId(number))));
        assert_eq!(permitted(), 3, "also those beyond the last type");
        permissions.permit_only(130, |_| true);
        assert_eq!(permitted(), 130);
        permissions.permit_only(130, |_| false);
        assert_eq!(permitted(), 0);
        permissions.permit_all();
        assert!(permissions.permits(TypeId(u16::MAX)));
    }
}
