//! Nodes that act in a world: the order of their turns, and checkers that observe them.

use core::fmt;

use pronto_core::{Clock as _, Nanos};

use crate::world::{SimNode, SimWorld};

/// Program of a node: an engine, with its callers.
pub trait Actor {
    /// Makes one turn: processes everything that has arrived. Returns the latest time of the next turn;
    /// [`Nanos::NEVER`] to wait for an event.
    fn turn(&mut self, now: Nanos) -> Nanos;
}

/// Creates the program of a node, for each of its incarnations (counted from 1).
pub type Boot = Box<dyn FnMut(&SimWorld, SimNode, u32) -> Box<dyn Actor>>;

/// Checks the world after every step, and panics on a violation.
pub type Checker = Box<dyn FnMut(&SimWorld)>;

/// A world with actors.
pub struct Simulation {
    world: SimWorld,
    places: Vec<Place>,
    checkers: Vec<Checker>,
    turns: u64,
}

/// A node and its program.
struct Place {
    node: SimNode,
    boot: Boot,
    actor: Option<Box<dyn Actor>>,
    incarnation: u32,
    /// Time of its next requested turn.
    due: Nanos,
}

impl Simulation {
    /// Creates a simulation without actors.
    pub fn new(world: SimWorld) -> Self {
        Self { world, places: Vec::new(), checkers: Vec::new(), turns: 0 }
    }

    /// Returns the world.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// Adds a node; `boot` is called now, and again for each new incarnation.
    pub fn add(&mut self, boot: Boot) -> SimNode {
        let node = self.world.add_node();
        let mut place = Place { node, boot, actor: None, incarnation: 0, due: Nanos::ZERO };
        place.boot(&self.world);
        self.places.push(place);
        node
    }

    /// Returns the number of turns of all nodes so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Adds a checker.
    pub fn check(&mut self, checker: Checker) {
        self.checkers.push(checker);
    }

    /// Executes the next event of the network, or the next turn of a node. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        let turn = self.next_turn();
        let event = self.world.next_event();
        match (turn, event) {
            (None, None) => return false,
            (Some((at, index)), event) if event.is_none_or(|event| at < event) => {
                self.world.advance_to(at);
                self.places[index].turn(&self.world);
                self.turns += 1;
            }
            _ => {
                self.world.step();
                self.follow_lives();
            }
        }
        for checker in &mut self.checkers {
            checker(&self.world);
        }
        true
    }

    /// Steps until `time`, or until there is no further event.
    pub fn run_until(&mut self, time: Nanos) {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.world.run_until(time);
    }

    /// Steps while `goes_on` returns true, at most until `time`. Returns whether `goes_on` has returned false.
    pub fn run_while(&mut self, time: Nanos, mut goes_on: impl FnMut() -> bool) -> bool {
        while goes_on() {
            if self.next_time().is_none_or(|next| next > time) || !self.step() {
                return !goes_on();
            }
        }
        true
    }

    fn next_time(&self) -> Option<Nanos> {
        let turn = self.next_turn().map(|(at, _)| at);
        [turn, self.world.next_event()].into_iter().flatten().min()
    }

    /// Returns the earliest turn, with the index of its node.
    fn next_turn(&self) -> Option<(Nanos, usize)> {
        let turns = self.places.iter().enumerate().filter_map(|(index, place)| {
            place.actor.as_ref()?;
            let due = (place.due != Nanos::NEVER).then(|| self.world.turn_time(place.node, place.due));
            let at = [due, self.world.wake_time(place.node)].into_iter().flatten().min()?;
            Some((at.max(self.world.now()), index))
        });
        turns.min()
    }

    /// Drops the actors of dead nodes and boots new incarnations.
    fn follow_lives(&mut self) {
        for place in &mut self.places {
            if !self.world.is_alive(place.node) {
                place.actor = None;
            } else if self.world.incarnation(place.node) != place.incarnation {
                place.boot(&self.world);
            }
        }
    }
}

impl Place {
    fn boot(&mut self, world: &SimWorld) {
        self.incarnation = world.incarnation(self.node);
        self.actor = Some((self.boot)(world, self.node, self.incarnation));
        self.due = world.now();
    }

    fn turn(&mut self, world: &SimWorld) {
        world.clear_wake(self.node);
        if let Some(actor) = &mut self.actor {
            let clock = world.clock_of(self.node);
            self.due = clock.in_world(actor.turn(clock.now()));
            world.note("turn", [self.node.0 as u64, self.due.0, 0]);
        }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("world", &self.world).finish_non_exhaustive()
    }
}
