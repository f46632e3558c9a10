//! Actors make turns when an event or their time comes; dead actors make none.

use core::cell::RefCell;
use std::rc::Rc;

use pronto_core::Nanos;
use pronto_sim::{Actor, Fault, SimNode, SimOptions, SimWorld, Simulation};

/// Records its turns, and requests one every millisecond.
struct Ticker {
    name: (SimNode, u32),
    log: Log,
}

type Log = Rc<RefCell<Vec<((SimNode, u32), Nanos)>>>;

impl Actor for Ticker {
    fn turn(&mut self, now: Nanos) -> Nanos {
        self.log.borrow_mut().push((self.name, now));
        now + Nanos::from_millis(1)
    }
}

fn simulation() -> (Simulation, Log, SimNode) {
    let mut simulation = Simulation::new(SimWorld::new(1, SimOptions::like_tcp()));
    let log = Log::default();
    let of_boot = Rc::clone(&log);
    let node = simulation.add(Box::new(move |_, node, incarnation| {
        Box::new(Ticker { name: (node, incarnation), log: Rc::clone(&of_boot) })
    }));
    (simulation, log, node)
}

fn turns(log: &Log, from: Nanos, to: Nanos) -> usize {
    log.borrow().iter().filter(|(_, at)| from <= *at && *at < to).count()
}

#[test]
fn timers_are_kept_over_pauses_and_slowness() {
    let (mut simulation, log, node) = simulation();
    let ms = Nanos::from_millis;
    simulation.run_until(ms(100));
    assert_eq!(turns(&log, ms(0), ms(100)), 100);
    simulation.world().inflict(Fault::Pause { node, span: ms(50) });
    simulation.run_until(ms(200));
    assert_eq!(turns(&log, ms(101), ms(150)), 0);
    assert_eq!(turns(&log, ms(150), ms(200)), 50);
    simulation.world().inflict(Fault::Slow { node, by: ms(4) });
    simulation.run_until(ms(300));
    assert_eq!(turns(&log, ms(205), ms(300)), 19);
}

#[test]
fn a_dead_node_makes_no_turns_and_restarts_as_a_new_incarnation() {
    let (mut simulation, log, node) = simulation();
    let ms = Nanos::from_millis;
    simulation.world().schedule(ms(10), Fault::CrashProcess(node));
    simulation.world().schedule(ms(20), Fault::Restart(node));
    simulation.run_until(ms(30));
    assert_eq!(turns(&log, ms(11), ms(20)), 0);
    let lives = log.borrow().iter().map(|((_, incarnation), _)| *incarnation).collect::<Vec<_>>();
    assert!(lives.contains(&1) && lives.contains(&2) && lives.is_sorted());
}

#[test]
fn checkers_see_every_step() {
    let (mut simulation, log, _) = simulation();
    let seen = Rc::new(RefCell::new(0));
    let counter = Rc::clone(&seen);
    simulation.check(Box::new(move |_| *counter.borrow_mut() += 1));
    simulation.run_until(Nanos::from_millis(10));
    assert_eq!(*seen.borrow(), log.borrow().len());
    assert!(*seen.borrow() >= 10);
}
