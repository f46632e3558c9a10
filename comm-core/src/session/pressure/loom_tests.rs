//! A loom model in which the engine enters pressures while another thread takes them, and a mutant that loom must refute.

use alloc::sync::Arc;

use loom::thread;

use super::*;

type Enter = fn(&PeerPressure, Pressure);

/// The engine enters two pressures while a thread takes. The larger one is taken by it or afterwards.
fn a_taker_against_the_engine(enter: Enter) {
    loom::model(move || {
        let peer = Arc::new(PeerPressure::default());
        let (low, high) = (Pressure::of(2), Pressure::of(8));
        let shared = Arc::clone(&peer);
        let taker = thread::spawn(move || (shared.take(), shared.take()));
        enter(&peer, high);
        enter(&peer, low);
        let (first, second) = taker.join().expect("the taker ends");
        let last = peer.take();
        assert_eq!(first.max(second).max(last), high, "the largest pressure was lost");
        let times = [first, second, last].into_iter().filter(|taken| *taken == high).count();
        assert_eq!(times, 1, "a pressure was taken twice");
    });
}

#[test]
fn a_pressure_is_taken_once() {
    a_taker_against_the_engine(PeerPressure::enter);
}

/// A mutant: the maximum is stored in two steps.
#[test]
#[should_panic(expected = "a pressure was taken twice")]
fn a_maximum_in_two_steps_is_refuted() {
    a_taker_against_the_engine(|peer, pressure| {
        let before = peer.0.load(Ordering::Relaxed);
        peer.0.store(before.max(pressure.as_bits()), Ordering::Relaxed);
    });
}
