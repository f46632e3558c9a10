//! Loom models of every protocol of this crate, and mutants that loom must refute.
//!
//! The threads share state through the plain `Arc`: dropping loom's while a refuted model unwinds would abort the test.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::task::Waker;

use loom::thread;

use crate::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::{Event, FlagWaker, OnceBox, TryLock, WakeWord, peer_is_armed};

#[test]
fn loom_try_lock_excludes() {
    loom::model(|| {
        let lock = Arc::new(TryLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || other.try_lock().map(|mut value| *value += 1).is_some());
        let here = lock.try_lock().map(|mut value| *value += 1).is_some();
        let there = thread.join().unwrap();
        assert!(here || there, "one thread gets a free lock");
        assert_eq!(*lock.try_lock().unwrap(), i32::from(here) + i32::from(there));
    });
}

/// Two threads submit and serve. In every interleaving, all submissions are served at the end.
///
/// Publishing is a swap in this model and the next, as loom lets a plain store come between the read and the write of
/// another thread's swap, which no memory model allows.
#[test]
fn loom_serve_strands_nothing() {
    loom::model(|| {
        let state = Arc::new((TryLock::new(0), [AtomicBool::new(false), AtomicBool::new(false)]));
        let submit = |state: &(TryLock<u32>, [AtomicBool; 2]), which: usize| {
            let (lock, submitted) = state;
            submitted[which].swap(true, Ordering::Release);
            lock.serve(
                || submitted.iter().any(|flag| flag.load(Ordering::Acquire)),
                |served| {
                    for flag in submitted {
                        *served += u32::from(flag.swap(false, Ordering::Acquire));
                    }
                },
            );
        };
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || submit(&other, 1));
        submit(&state, 0);
        thread.join().unwrap();
        assert_eq!(*state.0.try_lock().unwrap(), 2);
    });
}

/// Submits and serves without fences. Loom finds the execution in which each side misses the other's store.
#[test]
#[should_panic(expected = "stranded")]
fn loom_refutes_serve_without_fences() {
    loom::model(|| {
        let state = Arc::new((TryLock::new(0), AtomicBool::new(false)));
        let serve_unfenced = |state: &(TryLock<u32>, AtomicBool)| {
            while let Some(mut served) = state.0.try_lock() {
                *served += u32::from(state.1.swap(false, Ordering::Acquire));
                drop(served);
                if !state.1.load(Ordering::Acquire) {
                    break;
                }
            }
        };
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || serve_unfenced(&other));
        state.1.swap(true, Ordering::Release);
        serve_unfenced(&state);
        thread.join().unwrap();
        assert_eq!(*state.0.try_lock().unwrap(), 1, "stranded");
    });
}

/// Runs one sleeper and one sender. A sleeper that sleeps despite a published message deadlocks, which loom reports.
fn arm_recheck_sleep(needs_wake: fn(&WakeWord) -> bool, arm: fn(&WakeWord)) {
    loom::model(move || {
        let state = Arc::new((WakeWord::new(), AtomicU32::new(0)));
        let sleepers = Arc::clone(&state);
        let sleeper = thread::spawn(move || {
            let (word, message) = &*sleepers;
            while message.load(Ordering::Acquire) == 0 {
                arm(word);
                if message.load(Ordering::Acquire) == 0 && word.should_sleep() {
                    thread::park();
                }
                word.disarm();
            }
        });
        state.1.store(1, Ordering::Release);
        if needs_wake(&state.0) {
            sleeper.thread().unpark();
        }
        sleeper.join().unwrap();
    });
}

#[test]
fn loom_no_wake_up_is_lost() {
    arm_recheck_sleep(WakeWord::needs_wake, WakeWord::arm);
}

#[test]
fn loom_no_wake_up_is_lost_where_the_sender_only_reads() {
    arm_recheck_sleep(|word| peer_is_armed(word.by_ref().0, Event::Unsolicited), WakeWord::arm);
}

/// A sleeper armed for solicited events only. It then arms for all events before it rechecks.
#[test]
fn loom_no_wake_up_is_lost_after_arming_for_more() {
    loom::model(|| {
        let state = Arc::new((WakeWord::new(), AtomicU32::new(0)));
        let sleepers = Arc::clone(&state);
        let sleeper = thread::spawn(move || {
            let (word, message) = &*sleepers;
            word.by_ref().arm_solicited();
            while message.load(Ordering::Acquire) == 0 {
                word.arm();
                if message.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
            }
        });
        state.1.store(1, Ordering::Release);
        if peer_is_armed(state.0.by_ref().0, Event::Unsolicited) {
            sleeper.thread().unpark();
        }
        sleeper.join().unwrap();
    });
}

fn needs_wake_unfenced(word: &WakeWord) -> bool {
    let word = word.by_ref().0;
    word.compare_exchange(1, 2, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn arm_unfenced(word: &WakeWord) {
    word.by_ref().0.store(1, Ordering::Release);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_sender_without_fence() {
    arm_recheck_sleep(needs_wake_unfenced, WakeWord::arm);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_refutes_a_sleeper_without_fence() {
    arm_recheck_sleep(WakeWord::needs_wake, arm_unfenced);
}

/// Two senders and one arming: exactly one sender wakes.
#[test]
fn loom_one_sender_wakes() {
    loom::model(|| {
        let word = Arc::new(WakeWord::new());
        word.arm();
        let other = Arc::clone(&word);
        let thread = thread::spawn(move || other.needs_wake());
        let here = word.needs_wake();
        assert!(here ^ thread.join().unwrap());
    });
}

struct Woken(std::sync::Mutex<u32>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

/// One thread registers, then reads the flag; the other sets the flag, then wakes. The task is woken or sees the flag.
#[test]
fn loom_a_registered_task_is_woken_or_sees_the_flag() {
    loom::model(|| {
        let state = Arc::new((FlagWaker::new(), AtomicBool::new(false)));
        let other = Arc::clone(&state);
        let thread = thread::spawn(move || {
            other.1.store(true, Ordering::Relaxed);
            other.0.wake();
        });
        let woken = Arc::new(Woken(std::sync::Mutex::new(0)));
        state.0.register(&Waker::from(Arc::clone(&woken)));
        let saw = state.1.load(Ordering::Relaxed);
        thread.join().unwrap();
        assert!(saw || *woken.0.lock().unwrap() == 1, "neither seen nor woken");
    });
}

/// Two registrations run concurrently with two wakes. Only one thread at a time accesses the slot.
#[test]
fn loom_flag_waker_slot_is_exclusive() {
    loom::model(|| {
        let slot = Arc::new(FlagWaker::new());
        let threads = [Arc::clone(&slot), Arc::clone(&slot)].map(|slot| thread::spawn(move || slot.wake()));
        let woken = Arc::new(Woken(std::sync::Mutex::new(0)));
        slot.register(&Waker::from(Arc::clone(&woken)));
        slot.register(&Waker::from(Arc::new(Woken(std::sync::Mutex::new(0)))));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(*woken.0.lock().unwrap() <= 2);
    });
}

/// Two threads make the value of one box. Both see the same complete value, which is dropped once.
#[test]
fn loom_once_box_is_made_once() {
    loom::model(|| {
        let value = Arc::new(());
        let place = Arc::new(OnceBox::new());
        let (other, held) = (Arc::clone(&place), Arc::clone(&value));
        let make = |which: u32, held: Arc<()>| move || (which, [which; 2], held);
        let thread = thread::spawn(move || {
            let (which, both, _) = other.get_or_make(make(1, held));
            assert_eq!(both, &[*which; 2]);
            *which
        });
        let seen = place.get().map(|(which, both, _)| {
            assert_eq!(both, &[*which; 2]);
            *which
        });
        let here = place.get_or_make(make(2, Arc::clone(&value))).0;
        let there = thread.join().unwrap();
        assert_eq!(here, there, "the threads have different values");
        assert!(seen.is_none_or(|seen| seen == here));
        assert_eq!(Arc::strong_count(&value), 2, "the second thread has dropped its value");
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    });
}
