//! Order of messages within one queue pair, regardless of form and length.

use pronto_core::fabric::{PostError, QueuePair};
use pronto_wire::{INLINE_PAYLOAD, RawHeader};

use super::tests;
use crate::Harness;
use crate::rig::{End, Form, Rig};
use crate::suite::Chapter;

pub(super) fn chapter<H: Harness>() -> Chapter<H> {
    Chapter {
        name: "ordering",
        tests: tests![
            inline_payloads_of_every_length,
            inline_and_short_messages_keep_their_order,
            ring_payloads_of_every_kind_of_length,
            region_payloads_of_every_kind_of_length,
            forms_mixed_at_random_keep_their_order,
            inline_messages_never_overtake_large_ones,
            headers_arrive_unchanged,
            a_payload_that_is_too_long_is_rejected_without_effect,
        ],
    }
}

/// Lengths around every boundary that a transport may have: inline message, page, segment.
const LENGTHS: [usize; 10] = [0, 1, 39, 40, 41, 63, 64, 4095, 4096, 65536];

fn inline_payloads_of_every_length<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for from in End::BOTH {
        for len in 0..=copies(&mut rig) {
            rig.send(from, Form::Inline, len);
            rig.send(from, Form::Unsignalled, len);
        }
    }
    rig.finish();
}

/// Lengths alternate, so that polls fill different parts of the slot.
fn inline_and_short_messages_keep_their_order<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let copies = copies(&mut rig);
    let short = INLINE_PAYLOAD + usize::from(copies > INLINE_PAYLOAD);
    for round in 0..=copies {
        for form in [Form::Unsignalled, Form::Inline] {
            rig.submit(End::A, form, round % (INLINE_PAYLOAD + 1));
            rig.submit(End::A, form, round.max(short));
            rig.submit(End::A, form, copies - round);
        }
        rig.ring(End::A);
        if round % 4 == 0 {
            rig.pump();
        }
    }
    rig.finish();
}

fn ring_payloads_of_every_kind_of_length<H: Harness>(harness: &H) {
    every_kind_of_length(harness, Form::Ring);
}

fn region_payloads_of_every_kind_of_length<H: Harness>(harness: &H) {
    every_kind_of_length(harness, Form::Region);
}

fn every_kind_of_length<H: Harness>(harness: &H, form: Form) {
    let mut rig = Rig::new(harness);
    for from in End::BOTH {
        let longest = longest(&mut rig, from);
        for len in LENGTHS.into_iter().chain([longest - 1, longest]) {
            rig.send(from, form, len);
        }
    }
    rig.finish();
}

fn forms_mixed_at_random_keep_their_order<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let copies = copies(&mut rig);
    for _ in 0..400 {
        let from = End::BOTH[rig.random.below(2)];
        let form = Form::ALL[rig.random.below(4)];
        let bound = if form.is_inline() { copies } else { 9000 };
        let len = rig.random.below(bound + 1);
        rig.submit(from, form, len);
        if rig.random.below(3) == 0 {
            rig.ring(from);
        }
        if rig.random.below(4) == 0 {
            rig.pump();
        }
    }
    rig.ring_both();
    rig.finish();
}

/// The longest possible payload takes time; an inline message after it arrives immediately, and must wait.
fn inline_messages_never_overtake_large_ones<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for form in [Form::Ring, Form::Region] {
        for _ in 0..8 {
            let longest = longest(&mut rig, End::A);
            rig.send(End::A, form, longest);
            rig.send(End::A, Form::Unsignalled, 8);
            rig.send(End::A, Form::Inline, 0);
        }
    }
    rig.finish();
}

/// A provider uses only four bytes of a header and must not interpret the others.
///
/// Shows: protocol.fabric-word
fn headers_arrive_unchanged<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    for byte in 0..=u8::MAX {
        let form = Form::ALL[usize::from(byte) % 4];
        rig.submit_headed(End::A, form, 24, RawHeader::from_array([byte; 24]));
        rig.ring(End::A);
    }
    rig.finish();
}

fn a_payload_that_is_too_long_is_rejected_without_effect<H: Harness>(harness: &H) {
    let mut rig = Rig::new(harness);
    let max = longest(&mut rig, End::A);
    let copies = copies(&mut rig);
    for (form, max) in [(Form::Ring, max), (Form::Region, max), (Form::Inline, copies)] {
        let refused = rig.post(End::A, form, max + 1);
        assert_eq!(refused, Err(PostError::TooLong { len: max + 1, max }), "{form:?}");
        rig.send(End::A, form, max);
    }
    rig.finish();
}

/// Returns the longest payload that is copied while it is posted: at least 40 bytes, whatever the provider.
fn copies<H: Harness>(rig: &mut Rig<'_, H>) -> usize {
    let copies = rig.qp(End::A).capabilities().copies as usize;
    assert!(copies >= INLINE_PAYLOAD);
    copies
}

fn longest<H: Harness>(rig: &mut Rig<'_, H>, from: End) -> usize {
    rig.qp(from).capabilities().max_payload as usize
}
