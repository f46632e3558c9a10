//! Nodes that act in a world: whose turn it is, and checkers that look on.

use core::fmt;

use pronto_core::{Clock as _, Nanos};

use crate::world::{SimNode, SimWorld};

/// What runs on a node: an engine, with whoever calls it.
pub trait Actor {
    /// One turn: look at everything that has come, do what is to be done. Returns when to come again at the latest;
    /// [`Nanos::NEVER`] for when something comes.
    fn turn(&mut self, now: Nanos) -> Nanos;
}

/// Makes what runs on a node, for each of its lives (counted from 1).
pub type Boot = Box<dyn FnMut(&SimWorld, SimNode, u32) -> Box<dyn Actor>>;

/// Looks at the world after every step, and panics if it does not like what it sees.
pub type Checker = Box<dyn FnMut(&SimWorld)>;

/// A world with actors.
pub struct Simulation {
    world: SimWorld,
    places: Vec<Place>,
    checkers: Vec<Checker>,
    turns: u64,
}

/// A node and what runs there.
struct Place {
    node: SimNode,
    boot: Boot,
    actor: Option<Box<dyn Actor>>,
    life: u32,
    /// When it wants its next turn.
    due: Nanos,
}

impl Simulation {
    /// Nobody acts yet.
    pub fn new(world: SimWorld) -> Self {
        Self { world, places: Vec::new(), checkers: Vec::new(), turns: 0 }
    }

    /// The world.
    pub fn world(&self) -> &SimWorld {
        &self.world
    }

    /// Adds a node; `boot` is called now, and again for each new life.
    pub fn add(&mut self, boot: Boot) -> SimNode {
        let node = self.world.add_node();
        let mut place = Place { node, boot, actor: None, life: 0, due: Nanos::ZERO };
        place.boot(&self.world);
        self.places.push(place);
        node
    }

    /// Turns that were made so far, by all nodes.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Adds a checker.
    pub fn check(&mut self, checker: Checker) {
        self.checkers.push(checker);
    }

    /// What happens next: an event of the network, or somebody's turn. False if nothing is going to happen any more.
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

    /// Steps until a time has come, or nothing is going to happen.
    pub fn run_until(&mut self, time: Nanos) {
        while self.next_time().is_some_and(|next| next <= time) {
            self.step();
        }
        self.world.run_until(time);
    }

    /// Steps until something holds, at most until a time; whether it holds.
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

    /// The earliest turn, and whose it is.
    fn next_turn(&self) -> Option<(Nanos, usize)> {
        let turns = self.places.iter().enumerate().filter_map(|(index, place)| {
            place.actor.as_ref()?;
            let due = (place.due != Nanos::NEVER).then(|| self.world.turn_time(place.node, place.due));
            let at = [due, self.world.wake_time(place.node)].into_iter().flatten().min()?;
            Some((at.max(self.world.now()), index))
        });
        turns.min()
    }

    /// Buries the dead and boots those that live anew.
    fn follow_lives(&mut self) {
        for place in &mut self.places {
            if !self.world.is_alive(place.node) {
                place.actor = None;
            } else if self.world.life(place.node) != place.life {
                place.boot(&self.world);
            }
        }
    }
}

impl Place {
    fn boot(&mut self, world: &SimWorld) {
        self.life = world.life(self.node);
        self.actor = Some((self.boot)(world, self.node, self.life));
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
