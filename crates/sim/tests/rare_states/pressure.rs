//! The pressure in headers of sessions: after the loss of a link, when it changes while the engine is in use, and without agreement.

use pronto_core::Nanos;
use pronto_core::fabric::Arrived;
use pronto_core::session::{Event, HeaderPressure, Inbound, Limits, Response, Sink};
use pronto_sim::{SimExecutor, SimLease, SimOptions};
use pronto_wire::{Class, Pressure};

use super::pair::{Outcome, Pair, SimSession, enough, few, respond};

/// Long enough for a call and its response.
const SPAN: Nanos = Nanos::from_millis(10);

fn pair(pressure: HeaderPressure) -> Pair {
    Pair::new(SimOptions::like_tcp(), Limits { pressure, ..few() })
}

/// Makes a call that gets its response. Returns the pressure that arrived with the request and with the response.
fn call(pair: &mut Pair, number: u64) -> [Pressure; 2] {
    let call = pair.call(number, Nanos::NEVER);
    pair.pass(SPAN);
    answer(pair);
    assert_eq!(pair.outcome(call), Outcome::Reply);
    [pair.far.take_pressure(), pair.near.take_pressure()]
}

/// Answers all requests that the far side has received.
fn answer(pair: &mut Pair) {
    let asked = core::mem::take(&mut pair.callee.asked);
    asked.iter().for_each(respond);
    pair.pass(SPAN);
}

/// Shows: protocol.pressure
#[test]
fn headers_carry_the_pressure_of_their_sender_on_every_link() {
    let mut pair = pair(HeaderPressure::Carried);
    let (low, high) = (Pressure::of(2), Pressure::of(32));
    assert_eq!(call(&mut pair, 1), [Pressure::NONE; 2]);
    pair.near.set_pressure(high, &pair.executor);
    pair.far.set_pressure(low, &pair.executor);
    assert_eq!(call(&mut pair, 2), [high, low]);
    // A request that is sent again on another link carries the pressure of that link.
    let open = pair.call(3, Nanos::NEVER);
    pair.cut();
    pair.near.set_pressure(low, &pair.executor);
    pair.far.take_pressure();
    pair.link(enough());
    pair.pass(SPAN);
    answer(&mut pair);
    assert_eq!(pair.outcome(open), Outcome::Reply);
    assert_eq!([pair.far.take_pressure(), pair.near.take_pressure()], [low, low]);
    pair.near.set_pressure(Pressure::NONE, &pair.executor);
    assert_eq!(call(&mut pair, 4), [Pressure::NONE, low]);
}

/// A peer that has not agreed would end the session at the first header with pressure.
///
/// Shows: protocol.pressure-illegal
#[test]
fn without_agreement_no_header_has_any() {
    let mut pair = pair(HeaderPressure::Off);
    for session in [&pair.near, &pair.far] {
        session.set_pressure(Pressure::MOST, &pair.executor);
    }
    assert_eq!(call(&mut pair, 1), [Pressure::NONE; 2]);
    pair.cut();
    pair.link(enough());
    assert_eq!(call(&mut pair, 2), [Pressure::NONE; 2]);
    assert!(pair.near.is_up() && pair.far.is_up());
}

/// A sink that sets the pressure of its own session while that holds the engine.
struct Sets<'s>(&'s SimSession, &'s SimExecutor);

impl Sink<SimLease> for Sets<'_> {
    fn request(&mut self, inbound: Inbound<'_, Arrived<SimLease>>) {
        self.0.set_pressure(Pressure::MOST, self.1);
        inbound.token.respond(Response::Reply {
            class: Class::Control,
            payload: pronto_core::session::OutgoingPayload::EMPTY,
        });
    }

    fn event(&mut self, _event: Event) {}
}

#[test]
fn a_pressure_that_is_set_while_the_engine_is_in_use_is_written_at_the_next_tick() {
    let mut pair = pair(HeaderPressure::Carried);
    let first = pair.call(1, Nanos::NEVER);
    while !pair.near.has_ended(first) {
        pair.world.run_until(pair.world.now() + Nanos::from_micros(100));
        let mut sets = Sets(&pair.far, &pair.executor);
        let _progress = pair.far.turn(1, || false, &mut sets, &pair.executor);
        let _progress = pair.near.turn(1, || false, &mut super::pair::Callee::default(), &pair.executor);
    }
    assert_eq!(pair.outcome(first), Outcome::Reply);
    assert_eq!(pair.near.take_pressure(), Pressure::NONE, "the response left before");
    pair.pass(SPAN);
    assert_eq!(call(&mut pair, 2), [Pressure::NONE, Pressure::MOST]);
}
