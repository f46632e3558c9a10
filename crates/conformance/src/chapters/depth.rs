//! As many messages as agreed may be in flight while the other end does not poll.

use pronto_core::fabric::{ConnectionLimits, QueuePair};

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, LIMITS, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "depth",
        tests: tests![
            inline_messages_up_to_the_depth,
            messages_of_all_forms_up_to_the_depth,
            the_longest_messages_in_both_directions,
            the_two_directions_may_differ,
            a_full_window_for_many_laps,
        ],
    }
}

fn inline_messages_up_to_the_depth<H: Harness>(harness: &H) {
    fill_and_drain(harness, LIMITS, |_| (Form::Inline, 40));
}

fn messages_of_all_forms_up_to_the_depth<H: Harness>(harness: &H) {
    fill_and_drain(harness, LIMITS, |i| (Form::ALL[i % 4], 37));
}

fn the_longest_messages_in_both_directions<H: Harness>(harness: &H) {
    fill_and_drain(harness, LIMITS, |_| (Form::Ring, LIMITS.max_send_payload as usize));
}

fn the_two_directions_may_differ<H: Harness>(harness: &H) {
    let limits = ConnectionLimits {
        send_depth: 4,
        receive_depth: 64,
        max_send_payload: 256,
        max_receive_payload: 8192,
        ..LIMITS
    };
    fill_and_drain(harness, limits, |i| (Form::ALL[i % 4], 40));
    fill_and_drain(harness, limits, |_| (Form::Ring, 256));
}

/// Fills both directions before either end polls, three times.
fn fill_and_drain<H: Harness>(harness: &H, limits: ConnectionLimits, what: impl Fn(usize) -> (Form, usize)) {
    let mut rig = Rig::with_limits(harness, limits);
    for _ in 0..3 {
        for from in End::BOTH {
            let depth = rig.qp(from).capabilities().send_depth as usize;
            for i in 0..depth {
                let (form, len) = what(i);
                rig.post(from, form, len).expect("messages up to the depth can be posted");
            }
            rig.ring(from);
        }
        rig.wait_idle();
    }
    rig.finish();
}

fn a_full_window_for_many_laps<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let depth = rig.qp(End::A).capabilities().send_depth as usize;
    for i in 0..30 * depth {
        for from in End::BOTH {
            rig.send(from, Form::ALL[i % 4], 40);
        }
    }
    rig.finish();
}
