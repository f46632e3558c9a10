//! Loom models in which senders and the engine take, give and put back credits while the engine replaces the link; and mutants that
//! loom must refute.
//!
//! The orderings are relaxed, because a credit orders nothing. The models show that the changes of the word are atomic: a credit is taken
//! once, none is lost, and a credit of an earlier link never becomes one of the next.

use alloc::sync::Arc;

use loom::thread;

use super::*;

type Take = fn(&Credits) -> Option<Credit>;
type PutBack = fn(&Credits, Credit);

/// Window of the first link. It has the smallest size of which the engine sets one credit aside.
const WINDOW: u16 = 4;

/// A sender takes with `take` while the engine takes, and receives one credit. Each credit is taken once.
fn a_sender_against_the_engine(take: Take) {
    loom::model(move || {
        let credits = Arc::new(Credits::default());
        credits.reset(1, 2);
        let shared = Arc::clone(&credits);
        let sender = thread::spawn(move || {
            let taken: [Option<Credit>; 2] = core::array::from_fn(|_| take(&shared));
            taken.iter().flatten().count()
        });
        let mut taken = usize::from(credits.take_in_engine().is_some());
        credits.give(1);
        taken += usize::from(credits.take_in_engine().is_some());
        taken += sender.join().expect("the sender ends");
        taken += core::iter::from_fn(|| credits.take_in_engine()).count();
        assert_eq!(taken, 3, "a credit was lost, or taken twice");
        assert_eq!(credits.available(), 0);
    });
}

/// A sender takes a credit and puts it back with `put_back`, while the engine replaces the link and another sender takes.
fn a_sender_against_a_new_link(put_back: PutBack) {
    loom::model(move || {
        let credits = Arc::new(Credits::default());
        credits.reset(1, WINDOW);
        let (one, two) = (Arc::clone(&credits), Arc::clone(&credits));
        let undecided = thread::spawn(move || {
            if let Some(credit) = one.try_take() {
                put_back(&one, credit);
            }
        });
        let sender = thread::spawn(move || two.try_take());
        credits.reset(2, 0);
        credits.reset(2, WINDOW);
        undecided.join().expect("the sender ends");
        let taken = sender.join().expect("the sender ends").filter(|credit| credit.link == 2);
        let expected = u32::from(WINDOW) - u32::from(taken.is_some());
        assert_eq!(credits.available(), expected, "a credit came from an earlier link");
    });
}

/// A sender takes a credit while the engine closes the idle link with `close`. A credit is not taken of a closed link.
fn a_sender_against_a_pause(close: fn(&Credits) -> bool) {
    loom::model(move || {
        let credits = Arc::new(Credits::default());
        credits.reset(1, WINDOW);
        let shared = Arc::clone(&credits);
        let sender = thread::spawn(move || shared.try_take().is_some());
        let is_closed = close(&credits);
        let has_taken = sender.join().expect("the sender ends");
        assert!(!is_closed || !has_taken, "a credit was taken of a closed link");
        assert_eq!(credits.is_closed(), is_closed);
    });
}

#[test]
fn loom_a_link_closes_only_while_no_credit_is_taken() {
    a_sender_against_a_pause(|credits| credits.close_if_unused(WINDOW));
}

#[test]
#[should_panic(expected = "a credit was taken of a closed link")]
fn loom_refutes_closing_in_two_steps() {
    a_sender_against_a_pause(|credits| {
        let is_unused = credits.available() == u32::from(WINDOW);
        if is_unused {
            credits.reset(1, 0);
        }
        is_unused
    });
}

#[test]
fn loom_each_credit_is_taken_once() {
    a_sender_against_the_engine(Credits::try_take);
}

#[test]
#[should_panic(expected = "a credit was lost, or taken twice")]
fn loom_refutes_taking_in_two_steps() {
    a_sender_against_the_engine(|credits| {
        let (link, taken, limit) = unpack(credits.word.load(Ordering::Relaxed));
        (available(taken, limit) != 0).then(|| {
            credits.word.store(pack(link, taken.wrapping_add(1), limit), Ordering::Relaxed);
            Credit { link }
        })
    });
}

#[test]
#[should_panic(expected = "a credit was lost, or taken twice")]
fn loom_refutes_a_sender_that_takes_of_the_engine_reserve() {
    a_sender_against_the_engine(Credits::take_in_engine);
}

#[test]
fn loom_a_credit_ends_with_its_link() {
    a_sender_against_a_new_link(Credits::put_back);
}

#[test]
#[should_panic(expected = "a credit came from an earlier link")]
fn loom_refutes_putting_back_on_any_link() {
    a_sender_against_a_new_link(|credits, _| {
        credits.update(|link, taken, limit| (link, taken.wrapping_sub(1), limit));
    });
}

#[test]
#[should_panic(expected = "a credit came from an earlier link")]
fn loom_refutes_a_check_of_the_link_before_the_change() {
    a_sender_against_a_new_link(|credits, credit| {
        if credits.link() == credit.link {
            credits.update(|link, taken, limit| (link, taken.wrapping_sub(1), limit));
        }
    });
}

/// Two threads count requests of the next link while another one counts a request of the earlier link, which does not count any more.
fn handlers_against_a_new_link(add: fn(&Returned, u16)) {
    loom::model(move || {
        let returned = Arc::new(Returned::default());
        returned.reset(1);
        let (one, two) = (Arc::clone(&returned), Arc::clone(&returned));
        let late = thread::spawn(move || add(&one, 1));
        returned.reset(2);
        let next = thread::spawn(move || add(&two, 2));
        add(&returned, 2);
        late.join().expect("the handler ends");
        next.join().expect("the handler ends");
        assert_eq!(returned.count(), 2, "requests were lost, or came from an earlier link");
    });
}

#[test]
fn loom_a_request_counts_on_its_link() {
    handlers_against_a_new_link(Returned::add);
}

#[test]
#[should_panic(expected = "requests were lost, or came from an earlier link")]
fn loom_refutes_counting_on_any_link() {
    handlers_against_a_new_link(|returned, _| {
        returned.word.fetch_add(1, Ordering::Relaxed);
    });
}

#[test]
#[should_panic(expected = "requests were lost, or came from an earlier link")]
fn loom_refutes_counting_in_two_steps() {
    handlers_against_a_new_link(|returned, link| {
        let word = returned.word.load(Ordering::Relaxed);
        if word >> 32 == u64::from(link) {
            returned.word.store(word + 1, Ordering::Relaxed);
        }
    });
}
