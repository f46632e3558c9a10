//! Every protocol of this crate, explored by loom; and the mutants that it must refute.
//!
//! The threads share by the plain `Arc`: dropping loom's while a refuted model unwinds would abort the test.

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
        assert!(here || there, "somebody gets a free lock");
        assert_eq!(*lock.try_lock().unwrap(), i32::from(here) + i32::from(there));
    });
}

/// Publishing is a swap in these two models, as loom lets a plain store slip between the read and the write of another
/// thread's swap, which no memory model allows.
///
/// Two threads submit and serve; whatever the interleaving, nothing submitted lies unserved at the end.
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

/// The same without the fences: loom finds the execution in which both sides miss each other.
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

/// A sleeper that sleeps on a published message deadlocks, which loom reports.
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

/// A sleeper that asked for solicited events alone, then wants everything and arms once more before it rechecks.
#[test]
fn loom_no_wake_up_is_lost_to_who_asks_for_more() {
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

/// Two senders and one arming: one of them wakes, not both.
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

/// Register then look, against set then wake: the task is woken, or saw the flag.
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

/// A registration against two wakes at once, and a second registration: the slot is never reached by two.
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

/// Two threads make the value of one place: both see the same one, whole, and it is dropped once.
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
        assert_eq!(here, there, "each has its own");
        assert!(seen.is_none_or(|seen| seen == here));
        assert_eq!(Arc::strong_count(&value), 2, "who came second has dropped its own");
        drop(place);
        assert_eq!(Arc::strong_count(&value), 1);
    });
}
