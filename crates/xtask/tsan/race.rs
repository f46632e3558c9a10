//! Two threads add to one number. With the argument `race` nothing orders their additions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// A number without synchronisation.
struct Plain(core::cell::UnsafeCell<u32>);

// SAFETY: not upheld if the program runs with `race`: this is the fault that ThreadSanitizer must report.
unsafe impl Sync for Plain {}

static PLAIN: Plain = Plain(core::cell::UnsafeCell::new(0));
static ATOMIC: AtomicU32 = AtomicU32::new(0);

fn main() {
    let add: fn() = if std::env::args().any(|argument| argument == "race") { add_plainly } else { add };
    let threads = [thread::spawn(add), thread::spawn(add)];
    for thread in threads {
        thread.join().expect("the thread does not panic");
    }
}

fn add() {
    ATOMIC.fetch_add(1, Ordering::Relaxed);
}

fn add_plainly() {
    // SAFETY: see `Plain`.
    unsafe { *PLAIN.0.get() += 1 };
}
