//! Posting in batches: messages before and after a doorbell.

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "doorbell",
        tests: tests![
            one_doorbell_sends_a_whole_batch,
            a_doorbell_without_work_does_nothing,
            polling_continues_the_sends_of_a_doorbell,
            work_posted_early_arrives_no_later_than_its_doorbell,
            a_posted_message_arrives_without_a_doorbell needs [VisibleWhenPosted],
        ],
    }
}

fn one_doorbell_sends_a_whole_batch<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for batch in 1..=16 {
        for i in 0..batch {
            rig.post(End::A, Form::ALL[i % 4], 30).expect("a batch within the depth can be posted");
        }
        rig.ring(End::A);
        rig.wait_idle();
    }
    rig.finish();
}

fn a_doorbell_without_work_does_nothing<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for _ in 0..20 {
        rig.ring(End::A);
        rig.ring(End::B);
        rig.pump();
    }
    rig.send(End::A, Form::Inline, 8);
    rig.ring(End::A);
    rig.finish();
}

/// Sixteen long messages are more than a socket takes in one call. The doorbell is not rung again: polling continues
/// sending.
fn polling_continues_the_sends_of_a_doorbell<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for _ in 0..16 {
        rig.post(End::A, Form::Ring, 64 << 10).expect("a batch within the depth can be posted");
    }
    rig.ring(End::A);
    rig.finish();
}

fn a_posted_message_arrives_without_a_doorbell<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for form in Form::ALL {
        rig.post(End::A, form, 30).expect("a batch within the depth can be posted");
        let received = rig.at(End::B).received;
        assert!(rig.alone(End::B, |side| side.received == received + 1), "{form:?}");
    }
    rig.ring(End::A);
    rig.finish();
}

fn work_posted_early_arrives_no_later_than_its_doorbell<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for _ in 0..100 {
        for _ in 0..=rig.random.below(3) {
            let form = Form::ALL[rig.random.below(4)];
            rig.submit(End::A, form, 17);
            rig.alone(End::B, |_| true);
        }
        rig.ring(End::A);
        rig.wait("for the messages of the doorbell", |rig| rig.at(End::B).expects() == 0);
    }
    rig.finish();
}
