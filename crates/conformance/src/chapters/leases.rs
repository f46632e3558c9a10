//! Received payloads are held for any time, by any thread.

use std::thread;

use pronto_core::fabric::QueuePair;

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "leases",
        tests: tests![
            some_are_held_while_others_come_and_go,
            dropped_in_any_order,
            dropped_by_another_thread,
            all_receives_held,
            outlive_their_queue_pair,
        ],
    }
}

/// Longer than an inline message, so that the payload is in a receive buffer.
const LONG: usize = 300;

fn some_are_held_while_others_come_and_go<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    rig.at(End::B).hold = true;
    for form in [Form::Ring, Form::Region, Form::Ring, Form::Inline] {
        rig.send(End::A, form, if form.is_inline() { 40 } else { LONG });
    }
    rig.wait("for the messages to be held", |rig| rig.at(End::B).held.len() == 4);
    rig.at(End::B).hold = false;
    for i in 0..200 {
        let form = Form::ALL[i % 4];
        rig.send(End::A, form, if form.is_inline() { 8 } else { LONG + i });
        rig.send(End::B, form, 16);
    }
    rig.wait("for the others", |rig| rig.at(End::B).expects() == 0);
    for held in &rig.at(End::B).held {
        held.check();
    }
    rig.finish();
}

fn dropped_in_any_order<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    rig.at(End::B).hold = true;
    while rig.at(End::B).received < 300 {
        if rig.at(End::B).in_flight() < 12 {
            rig.send(End::A, Form::Ring, LONG);
        }
        rig.pump();
        while rig.at(End::B).held.len() > 8 {
            let count = rig.at(End::B).held.len();
            let which = rig.random.below(count);
            rig.at(End::B).held.swap_remove(which).check();
        }
    }
    rig.finish();
}

fn dropped_by_another_thread<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = rig.qp(End::A).capabilities().send_depth as usize;
    rig.at(End::B).hold = true;
    for _ in 0..10 {
        for i in 0..depth {
            rig.send(End::A, [Form::Ring, Form::Region][i % 2], LONG);
        }
        rig.wait("for a full window", |rig| rig.at(End::B).held.len() == depth);
        let held: Vec<_> = rig.at(End::B).held.drain(..).collect();
        let (payloads, expected): (Vec<_>, Vec<_>) =
            held.into_iter().map(|held| (held.payload, (held.seed, held.len))).unzip();
        let dropped = thread::spawn(move || {
            let lengths: Vec<_> = payloads.iter().map(pronto_core::fabric::Arrived::len).collect();
            drop(payloads);
            lengths
        });
        let lengths = dropped.join().expect("dropping leases does not panic");
        assert!(lengths.iter().eq(expected.iter().map(|(_, len)| len)));
    }
    rig.finish();
}

fn all_receives_held<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = rig.qp(End::A).capabilities().send_depth as usize;
    for _ in 0..5 {
        rig.at(End::B).hold = true;
        for _ in 0..depth {
            rig.send(End::A, Form::Ring, 4096);
        }
        rig.wait("for a full window", |rig| rig.at(End::B).held.len() == depth);
        rig.send(End::B, Form::Ring, LONG);
        for held in &rig.at(End::B).held {
            held.check();
        }
        rig.at(End::B).held.clear();
        rig.wait_idle();
    }
    rig.finish();
}

fn outlive_their_queue_pair<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    rig.at(End::B).hold = true;
    for form in [Form::Ring, Form::Region, Form::Inline] {
        rig.send(End::A, form, if form.is_inline() { 40 } else { 5000 });
    }
    rig.wait("for the messages to be held", |rig| rig.at(End::B).held.len() == 3);
    let held = core::mem::take(&mut rig.at(End::B).held);
    drop(rig);
    for held in &held {
        held.check();
    }
    let last = thread::spawn(move || drop(held));
    last.join().expect("dropping the last leases does not panic");
}
