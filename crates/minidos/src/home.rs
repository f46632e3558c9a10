//! What a node is home to: its pages and the futexes on them.
//!
//! A task may only sleep on a word if the word still has the value that the task saw. The value is compared *here*, in
//! the moment in which no other node can write the page, and the task is queued in the same moment. Who changes the word
//! must first be granted the page, so it comes before the comparison (and the task does not sleep) or after the
//! queueing (and its wake finds the task). There is no moment between.
//!
//! Use: as [`Directory`]; every `handle_*` ends with nothing of the directory's left undone.

use std::collections::VecDeque;

use pronto::NodeId;

use crate::directory::{Action, Directory, Returned, Violation};
use crate::futex::Sleepers;
use crate::messages::FutexOutcome;
use crate::page::{Access, Address, Page, PageNumber, Version};

/// What a home wants done.
#[derive(Debug, PartialEq, Eq)]
pub enum Deed<P, F> {
    /// As [`Action::Invalidate`].
    Invalidate {
        /// The reader.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
    },
    /// As [`Action::Recall`].
    Recall {
        /// The writer.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
        /// What somebody else is about to do.
        access: Access,
    },
    /// As [`Action::Grant`].
    Grant {
        /// Who asked.
        to: P,
        /// The page.
        page: PageNumber,
        /// The number of this grant.
        version: Version,
        /// The contents; `None` if who asked has them.
        contents: Option<Box<Page>>,
    },
    /// Answer a futex operation.
    Futex {
        /// Who asked.
        to: F,
        /// What happened.
        outcome: FutexOutcome,
        /// Tasks woken.
        woken: u32,
    },
}

/// Who looks at a page.
#[derive(Debug)]
enum Asker<P, F> {
    Page(P),
    Sleeper { address: Address, seen: u32, to: F },
}

/// One home. `P` is the handle by which a request for a page is answered, `F` that of a futex operation.
#[derive(Debug)]
pub struct Home<P, F> {
    directory: Directory<Asker<P, F>>,
    sleepers: Sleepers<F>,
    deeds: VecDeque<Deed<P, F>>,
}

impl<P, F> Default for Home<P, F> {
    fn default() -> Self {
        Self { directory: Directory::default(), sleepers: Sleepers::default(), deeds: VecDeque::new() }
    }
}

impl<P, F> Home<P, F> {
    /// Takes a page in.
    pub fn insert(&mut self, page: PageNumber, contents: Box<Page>) {
        self.directory.insert(page, contents);
    }

    /// Takes a page of zeroes in, if it is not here yet.
    pub fn insert_if_absent(&mut self, page: PageNumber) {
        self.directory.insert_if_absent(page);
    }

    /// As [`Directory::handle_request`].
    ///
    /// # Errors
    /// [`Violation`]; who asked is not answered.
    pub fn handle_request(
        &mut self,
        page: PageNumber,
        from: NodeId,
        access: Access,
        held: Version,
        to: P,
    ) -> Result<(), Violation> {
        let result = self.directory.handle_request(page, from, access, held, Asker::Page(to));
        self.drain();
        result.map_err(|(violation, _)| violation)
    }

    /// As [`Directory::handle_invalidated`].
    ///
    /// # Errors
    /// [`Violation`].
    pub fn handle_invalidated(&mut self, page: PageNumber, from: NodeId) -> Result<(), Violation> {
        let result = self.directory.handle_invalidated(page, from);
        self.drain();
        result
    }

    /// As [`Directory::handle_recalled`].
    ///
    /// # Errors
    /// [`Violation`].
    pub fn handle_recalled(
        &mut self,
        page: PageNumber,
        from: NodeId,
        returned: Returned,
    ) -> Result<(), Violation> {
        let result = self.directory.handle_recalled(page, from, returned);
        self.drain();
        result
    }

    /// As [`Directory::handle_released`] and, with contents, [`Directory::handle_flushed`].
    ///
    /// # Errors
    /// [`Violation`].
    pub fn handle_given_back(
        &mut self,
        page: PageNumber,
        from: NodeId,
        version: Version,
        contents: Option<Box<Page>>,
    ) -> Result<(), Violation> {
        match contents {
            Some(contents) => self.directory.handle_flushed(page, from, version, contents),
            None => self.directory.handle_released(page, from, version),
        }
    }

    /// A task wants to sleep on the word at `address`, where it saw `seen`.
    ///
    /// # Errors
    /// [`Violation`]; the task is not answered.
    pub fn handle_wait(&mut self, address: Address, seen: u32, to: F) -> Result<(), Violation> {
        let asker = Asker::Sleeper { address, seen, to };
        let result = self.directory.handle_look(address.page(), address.offset(), asker);
        self.drain();
        result.map_err(|(violation, _)| violation)
    }

    /// Somebody wakes at most `most` tasks that sleep on the word at `address`.
    pub fn handle_wake(&mut self, address: Address, most: u32, to: F) {
        let mut woken = 0;
        for sleeper in self.sleepers.wake(address, most) {
            woken += 1;
            self.deeds.push_back(Deed::Futex { to: sleeper, outcome: FutexOutcome::Woken, woken: 0 });
        }
        self.deeds.push_back(Deed::Futex { to, outcome: FutexOutcome::Done, woken });
    }

    /// The next thing to do.
    pub fn poll_deed(&mut self) -> Option<Deed<P, F>> {
        self.deeds.pop_front()
    }

    /// How many tasks sleep here.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.sleepers.len()
    }

    /// Turns the directory's actions into deeds, before anything else can happen to it: that is what makes the
    /// comparison and the queueing one moment.
    fn drain(&mut self) {
        while let Some(action) = self.directory.poll_action() {
            match action {
                Action::Invalidate { to, page, version } => {
                    self.deeds.push_back(Deed::Invalidate { to, page, version });
                }
                Action::Recall { to, page, version, access } => {
                    self.deeds.push_back(Deed::Recall { to, page, version, access });
                }
                Action::Grant { to: Asker::Page(to), page, version, contents } => {
                    self.deeds.push_back(Deed::Grant { to, page, version, contents });
                }
                Action::Word { to: Asker::Sleeper { address, seen, to }, word } => {
                    self.sleep_if(word, address, seen, to);
                }
                Action::Grant { to: Asker::Sleeper { .. }, .. } | Action::Word { to: Asker::Page(_), .. } => {
                    unreachable!("each asker is answered with what it asked for");
                }
            }
        }
    }

    fn sleep_if(&mut self, word: Option<u32>, address: Address, seen: u32, to: F) {
        let outcome = match word {
            Some(word) if word == seen => return self.sleepers.push(address, to),
            Some(_) => FutexOutcome::Changed,
            None => FutexOutcome::Misplaced,
        };
        self.deeds.push_back(Deed::Futex { to, outcome, woken: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const PAGE: PageNumber = PageNumber(0);
    const WORD: Address = Address(0);
    const WRITER: NodeId = NodeId(2);

    type TestHome = Home<&'static str, &'static str>;

    fn home() -> TestHome {
        let mut home = Home::default();
        home.insert(PAGE, Page::zeroed());
        home
    }

    fn deeds(home: &mut TestHome) -> Vec<Deed<&'static str, &'static str>> {
        core::iter::from_fn(|| home.poll_deed()).collect()
    }

    fn answer(to: &'static str, outcome: FutexOutcome, woken: u32) -> Deed<&'static str, &'static str> {
        Deed::Futex { to, outcome, woken }
    }

    fn with_word(word: u32) -> Box<Page> {
        let mut page = Page::zeroed();
        page.0[..4].copy_from_slice(&word.to_le_bytes());
        page
    }

    #[test]
    fn a_task_sleeps_only_if_the_word_is_what_it_saw() {
        let mut home = home();
        home.handle_wait(WORD, 1, "late").unwrap();
        home.handle_wait(WORD, 0, "sleeper").unwrap();
        home.handle_wait(Address(4094), 0, "lost").unwrap();
        let refused = [answer("late", FutexOutcome::Changed, 0), answer("lost", FutexOutcome::Misplaced, 0)];
        assert_eq!(deeds(&mut home), refused);
        home.handle_wake(WORD, 5, "waker");
        let woken = [answer("sleeper", FutexOutcome::Woken, 0), answer("waker", FutexOutcome::Done, 1)];
        assert_eq!(deeds(&mut home), woken);
    }

    #[test]
    fn the_word_is_looked_at_where_its_writer_left_it() {
        let mut home = home();
        home.handle_request(PAGE, WRITER, Access::Write, Version::NONE, "writer").unwrap();
        home.handle_wait(WORD, 0, "late").unwrap();
        deeds(&mut home);
        home.handle_recalled(PAGE, WRITER, Returned::Contents(with_word(1))).unwrap();
        assert_eq!(deeds(&mut home), [answer("late", FutexOutcome::Changed, 0)]);
        assert_eq!(home.sleepers(), 0);
    }

    /// A waiter that saw 0 against a writer that sets 1 and then wakes, in every interleaving that the network allows:
    /// the waiter is answered in the end, always.
    #[test]
    fn no_wake_is_lost_whatever_comes_first() {
        let mut slept = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut home, mut wait_sent, mut write_sent, mut granted) = (home(), false, false, false);
            let (mut wake_sent, mut recalled, mut answered) = (false, None, false);
            while !(wait_sent && wake_sent && recalled.is_none()) {
                match random.below(4) {
                    0 if !wait_sent => {
                        wait_sent = true;
                        home.handle_wait(WORD, 0, "waiter").unwrap();
                        slept += home.sleepers();
                    }
                    1 if !write_sent => {
                        write_sent = true;
                        home.handle_request(PAGE, WRITER, Access::Write, Version::NONE, "w").unwrap();
                    }
                    // Who was granted the page has written, and wakes.
                    2 if granted && !wake_sent => {
                        wake_sent = true;
                        home.handle_wake(WORD, u32::MAX, "waker");
                    }
                    3 if recalled == Some(()) => {
                        recalled = None;
                        home.handle_recalled(PAGE, WRITER, Returned::Contents(with_word(1))).unwrap();
                    }
                    _ => {}
                }
                for deed in deeds(&mut home) {
                    match deed {
                        Deed::Grant { .. } => granted = true,
                        Deed::Recall { .. } => recalled = Some(()),
                        Deed::Futex { to, .. } => answered |= to == "waiter",
                        Deed::Invalidate { .. } => unreachable!("nobody reads"),
                    }
                }
            }
            assert!(answered && home.sleepers() == 0, "seed {seed}");
        }
        assert!((1..200).contains(&slept), "both orders must occur: {slept}");
    }
}
