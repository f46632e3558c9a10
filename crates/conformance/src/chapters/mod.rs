//! The suite: one chapter per subject of the fabric, in reading order.

mod arming;
mod atomics;
mod bounds;
mod completion;
mod depth;
mod disconnect;
mod doorbell;
mod gather;
mod grants;
mod leases;
mod one_sided;
mod ordering;
mod registration;
mod rendezvous;
mod sleepers;

use crate::Harness;
use crate::suite::Chapter;

/// Returns every chapter. New chapters are registered here.
pub(crate) fn all<H: Harness>() -> Vec<Chapter<H>> {
    vec![
        ordering::chapter(),
        completion::chapter(),
        doorbell::chapter(),
        depth::chapter(),
        leases::chapter(),
        gather::chapter(),
        bounds::chapter(),
        registration::chapter(),
        arming::chapter(),
        sleepers::chapter(),
        disconnect::chapter(),
        one_sided::chapter(),
        atomics::chapter(),
        grants::chapter(),
        rendezvous::chapter(),
    ]
}

/// Lists a chapter's tests by their functions: `tests![first, second needs [Channel]]`.
macro_rules! tests {
    ($($test:ident $(needs [$($need:ident),+])?),+ $(,)?) => {
        vec![$($crate::suite::Test {
            name: stringify!($test),
            needs: &[$($($crate::summary::Capability::$need),+)?],
            run: $test::<H>,
        }),+]
    };
}
use tests;
