//! The home role of a node: its pages and the futexes on them.
//!
//! A task may only sleep on a word if the word still has the value that the task saw. The home compares the value at a moment
//! when no other node can write the page, and queues the task in the same step. A task that changes the word must first be
//! granted the page. It therefore writes either before the comparison, and the task does not sleep, or after the queueing,
//! and its wake-up finds the task. There is no moment between.
//!
//! It is used like [`Directory`]. Every `handle_*` processes all actions of the directory before it returns.

use std::collections::VecDeque;

use pronto::NodeId;

use crate::directory::{Action, Directory, Returned, Violation};
use crate::futex::Sleepers;
use crate::messages::FutexOutcome;
use crate::page::{Access, Address, Page, PageNumber, Version};

/// An action that a home requests.
#[derive(Debug, PartialEq, Eq)]
pub enum HomeAction<P, F> {
    /// Ask a reader to drop its copy, as [`Action::Invalidate`].
    Invalidate {
        /// The reader.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
    },
    /// Ask the writer for the contents, as [`Action::Recall`].
    Recall {
        /// The writer.
        to: NodeId,
        /// The page.
        page: PageNumber,
        /// The grant that ends.
        version: Version,
        /// The access that another node is about to get.
        access: Access,
    },
    /// Grant a page, as [`Action::Grant`].
    Grant {
        /// Handle of the requester.
        to: P,
        /// The page.
        page: PageNumber,
        /// The number of this grant.
        version: Version,
        /// The contents; `None` if the requester has them.
        contents: Option<Box<Page>>,
    },
    /// Respond to a futex operation.
    Futex {
        /// Handle of the requester.
        to: F,
        /// Outcome of the operation.
        outcome: FutexOutcome,
        /// Number of tasks woken.
        woken: u32,
    },
}

/// Requester of a page or a word.
#[derive(Debug)]
enum Client<P, F> {
    Page(P),
    Sleeper { address: Address, seen: u32, to: F },
}

/// One home. `P` is the handle for the response to a page request, `F` for the response to a futex operation.
#[derive(Debug)]
pub struct Home<P, F> {
    directory: Directory<Client<P, F>>,
    sleepers: Sleepers<F>,
    actions: VecDeque<HomeAction<P, F>>,
}

impl<P, F> Default for Home<P, F> {
    fn default() -> Self {
        Self { directory: Directory::default(), sleepers: Sleepers::default(), actions: VecDeque::new() }
    }
}

impl<P, F> Home<P, F> {
    /// Adds a page.
    pub fn insert(&mut self, page: PageNumber, contents: Box<Page>) {
        self.directory.insert(page, contents);
    }

    /// Adds a page of zeroes if the page does not exist yet.
    pub fn insert_if_absent(&mut self, page: PageNumber) {
        self.directory.insert_if_absent(page);
    }

    /// Handles a request for a page, as [`Directory::handle_request`].
    ///
    /// # Errors
    /// [`Violation`]; the requester gets no response.
    pub fn handle_request(
        &mut self,
        page: PageNumber,
        from: NodeId,
        access: Access,
        held: Version,
        to: P,
    ) -> Result<(), Violation> {
        let result = self.directory.handle_request(page, from, access, held, Client::Page(to));
        self.drain();
        result.map_err(|(violation, _)| violation)
    }

    /// Handles a reader's response, as [`Directory::handle_invalidated`].
    ///
    /// # Errors
    /// [`Violation`].
    pub fn handle_invalidated(&mut self, page: PageNumber, from: NodeId) -> Result<(), Violation> {
        let result = self.directory.handle_invalidated(page, from);
        self.drain();
        result
    }

    /// Handles the writer's response, as [`Directory::handle_recalled`].
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

    /// Handles a returned page: with contents as [`Directory::handle_flushed`], without as [`Directory::handle_released`].
    ///
    /// # Errors
    /// [`Violation`].
    pub fn handle_returned(
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

    /// Lets a task sleep on the word at `address` if the word is `seen`.
    ///
    /// # Errors
    /// [`Violation`]; the task gets no response.
    pub fn handle_wait(&mut self, address: Address, seen: u32, to: F) -> Result<(), Violation> {
        let client = Client::Sleeper { address, seen, to };
        let result = self.directory.handle_read_word(address.page(), address.offset(), client);
        self.drain();
        result.map_err(|(violation, _)| violation)
    }

    /// Wakes up to `most` tasks that sleep on the word at `address`.
    pub fn handle_wake(&mut self, address: Address, most: u32, to: F) {
        let mut woken = 0;
        for sleeper in self.sleepers.wake(address, most) {
            woken += 1;
            self.actions.push_back(HomeAction::Futex { to: sleeper, outcome: FutexOutcome::Woken, woken: 0 });
        }
        self.actions.push_back(HomeAction::Futex { to, outcome: FutexOutcome::Done, woken });
    }

    /// Returns the next action to execute.
    pub fn poll_action(&mut self) -> Option<HomeAction<P, F>> {
        self.actions.pop_front()
    }

    /// Returns the number of tasks that sleep here.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.sleepers.len()
    }

    /// Converts the directory's actions before the next event can reach the directory. This makes the comparison and the
    /// queueing atomic.
    fn drain(&mut self) {
        while let Some(action) = self.directory.poll_action() {
            match action {
                Action::Invalidate { to, page, version } => {
                    self.actions.push_back(HomeAction::Invalidate { to, page, version });
                }
                Action::Recall { to, page, version, access } => {
                    self.actions.push_back(HomeAction::Recall { to, page, version, access });
                }
                Action::Grant { to: Client::Page(to), page, version, contents } => {
                    self.actions.push_back(HomeAction::Grant { to, page, version, contents });
                }
                Action::Word { to: Client::Sleeper { address, seen, to }, word } => {
                    self.sleep_if(word, address, seen, to);
                }
                Action::Grant { to: Client::Sleeper { .. }, .. }
                | Action::Word { to: Client::Page(_), .. } => {
                    unreachable!("each client gets the kind of response that it requested");
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
        self.actions.push_back(HomeAction::Futex { to, outcome, woken: 0 });
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

    fn actions(home: &mut TestHome) -> Vec<HomeAction<&'static str, &'static str>> {
        core::iter::from_fn(|| home.poll_action()).collect()
    }

    fn response(
        to: &'static str,
        outcome: FutexOutcome,
        woken: u32,
    ) -> HomeAction<&'static str, &'static str> {
        HomeAction::Futex { to, outcome, woken }
    }

    fn with_word(word: u32) -> Box<Page> {
        let mut page = Page::zeroed();
        page.0[..4].copy_from_slice(&word.to_le_bytes());
        page
    }

    #[test]
    fn a_task_sleeps_only_if_the_word_is_unchanged() {
        let mut home = home();
        home.handle_wait(WORD, 1, "late").unwrap();
        home.handle_wait(WORD, 0, "sleeper").unwrap();
        home.handle_wait(Address(4094), 0, "lost").unwrap();
        let refused =
            [response("late", FutexOutcome::Changed, 0), response("lost", FutexOutcome::Misplaced, 0)];
        assert_eq!(actions(&mut home), refused);
        home.handle_wake(WORD, 5, "waker");
        let woken = [response("sleeper", FutexOutcome::Woken, 0), response("waker", FutexOutcome::Done, 1)];
        assert_eq!(actions(&mut home), woken);
    }

    #[test]
    fn the_comparison_sees_the_last_write() {
        let mut home = home();
        home.handle_request(PAGE, WRITER, Access::Write, Version::NONE, "writer").unwrap();
        home.handle_wait(WORD, 0, "late").unwrap();
        actions(&mut home);
        home.handle_recalled(PAGE, WRITER, Returned::Contents(with_word(1))).unwrap();
        assert_eq!(actions(&mut home), [response("late", FutexOutcome::Changed, 0)]);
        assert_eq!(home.sleepers(), 0);
    }

    /// Runs a waiter that saw 0 against a writer that sets 1 and then wakes, in every interleaving that the network allows.
    /// The waiter always gets a response in the end.
    #[test]
    fn no_wake_up_is_lost_in_any_order() {
        let mut slept = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut home, mut wait_sent, mut write_sent, mut granted) = (home(), false, false, false);
            let (mut wake_sent, mut recalled, mut responded) = (false, None, false);
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
                    // A writer that was granted the page has written, and wakes.
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
                for action in actions(&mut home) {
                    match action {
                        HomeAction::Grant { .. } => granted = true,
                        HomeAction::Recall { .. } => recalled = Some(()),
                        HomeAction::Futex { to, .. } => responded |= to == "waiter",
                        HomeAction::Invalidate { .. } => unreachable!("no node reads"),
                    }
                }
            }
            assert!(responded && home.sleepers() == 0, "seed {seed}");
        }
        assert!((1..200).contains(&slept), "both orders must occur: {slept}");
    }
}
