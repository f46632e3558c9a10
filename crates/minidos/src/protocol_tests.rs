//! Directory and caches against each other, message by message in random order.
//!
//! The network of this model keeps no order at all, which is more than any provider does to us. Each page holds a
//! number; a write adds one to it. Every read must see the number of writes so far: that is one writer or many readers,
//! and nothing lost.

use std::collections::HashMap;

use pronto::NodeId;

use crate::cache::{Answer, Cache, Touch};
use crate::directory::{Action, Directory, Returned};
use crate::page::{Access, Page, PageNumber, Version};
use crate::random::Random;

const NODES: u16 = 4;
const TASKS_PER_NODE: usize = 2;
const PAGES: u64 = 3;
const FRAMES: usize = 2;
const STEPS: usize = 3_000;
const SEEDS: u64 = 60;

type Reply = Option<Box<Page>>;

/// What is under way.
#[derive(Debug)]
enum Flight {
    Request { from: NodeId, page: PageNumber, access: Access, held: Version },
    Grant { to: NodeId, page: PageNumber, version: Version, contents: Reply },
    Invalidate { to: NodeId, page: PageNumber, version: Version },
    Invalidated { from: NodeId, page: PageNumber },
    Recall { to: NodeId, page: PageNumber, version: Version, access: Access },
    Recalled { from: NodeId, page: PageNumber, contents: Reply },
    GiveBack { from: NodeId, page: PageNumber, version: Version, contents: Reply },
    Noted { to: NodeId, page: PageNumber },
}

/// What a task is about to do.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Task {
    Free,
    /// Wants to, and tries again.
    Trying(PageNumber, Access),
    /// Waits for the answer of a home.
    Faulting(PageNumber, Access),
}

/// How a home is answered: was it a recall?
#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    Invalidation,
    Recall,
}

struct World {
    random: Random,
    directories: HashMap<NodeId, Directory<NodeId>>,
    caches: HashMap<NodeId, Cache<To>>,
    tasks: Vec<(NodeId, Task)>,
    flights: Vec<Flight>,
    written: HashMap<PageNumber, u32>,
    done: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        let nodes = || (1..=NODES).map(NodeId);
        let mut directories: HashMap<_, Directory<NodeId>> =
            nodes().map(|node| (node, Directory::default())).collect();
        for page in (0..PAGES).map(PageNumber) {
            directories.get_mut(&page.home(NODES)).unwrap().insert(page, Page::zeroed());
        }
        Self {
            random: Random::new(seed),
            directories,
            caches: nodes().map(|node| (node, Cache::new(FRAMES))).collect(),
            tasks: nodes().flat_map(|node| [(node, Task::Free); TASKS_PER_NODE]).collect(),
            flights: Vec::new(),
            written: HashMap::new(),
            done: 0,
        }
    }

    /// One task or one message, at random; new work only if `fresh`.
    fn step(&mut self, fresh: bool) {
        if self.random.below(2) == 0 && !self.flights.is_empty() {
            let place = self.random.below(self.flights.len());
            let flight = self.flights.swap_remove(place);
            self.deliver(flight);
        } else {
            let place = self.random.below(self.tasks.len());
            self.run(place, fresh);
        }
    }

    fn run(&mut self, place: usize, fresh: bool) {
        let (node, task) = self.tasks[place];
        let (page, access) = match task {
            Task::Faulting(..) => return,
            Task::Trying(page, access) => (page, access),
            Task::Free if !fresh => return,
            Task::Free => {
                let page = PageNumber(self.random.bits() % PAGES);
                (page, if self.random.below(3) == 0 { Access::Write } else { Access::Read })
            }
        };
        self.tasks[place].1 = match self.caches.get_mut(&node).unwrap().touch(page, access) {
            Touch::Hit => {
                self.use_page(node, page, access);
                Task::Free
            }
            Touch::Wait => Task::Trying(page, access),
            Touch::Fault { held } => {
                self.flights.push(Flight::Request { from: node, page, access, held });
                Task::Faulting(page, access)
            }
        };
    }

    fn use_page(&mut self, node: NodeId, page: PageNumber, access: Access) {
        let cache = self.caches.get_mut(&node).unwrap();
        let written = self.written.entry(page).or_default();
        let seen = cache.contents(page).unwrap().word(0).unwrap();
        assert_eq!(seen, *written, "node {node}, page {}", page.0);
        if access == Access::Write {
            *written += 1;
            cache.contents_mut(page).unwrap().0[..4].copy_from_slice(&written.to_le_bytes());
        }
        self.done += 1;
    }

    fn deliver(&mut self, flight: Flight) {
        let home = |page: PageNumber| page.home(NODES);
        match flight {
            Flight::Request { from, page, access, held } => {
                let directory = self.directories.get_mut(&home(page)).unwrap();
                directory.handle_request(page, from, access, held, from).unwrap();
            }
            Flight::Grant { to, page, version, contents } => self.granted(to, page, version, contents),
            Flight::Invalidate { to, page, version } => {
                let answer =
                    self.caches.get_mut(&to).unwrap().handle_invalidate(page, version, To::Invalidation);
                self.answered(to, answer);
            }
            Flight::Recall { to, page, version, access } => {
                let answer =
                    self.caches.get_mut(&to).unwrap().handle_recall(page, version, access, To::Recall);
                self.answered(to, answer);
            }
            Flight::Invalidated { from, page } => {
                self.directories.get_mut(&home(page)).unwrap().handle_invalidated(page, from).unwrap();
            }
            Flight::Recalled { from, page, contents } => {
                let returned = contents.map_or(Returned::Gone, Returned::Contents);
                self.directories.get_mut(&home(page)).unwrap().handle_recalled(page, from, returned).unwrap();
            }
            Flight::GiveBack { from, page, version, contents } => {
                let directory = self.directories.get_mut(&home(page)).unwrap();
                match contents {
                    Some(contents) => directory.handle_flushed(page, from, version, contents).unwrap(),
                    None => directory.handle_released(page, from, version).unwrap(),
                }
                self.flights.push(Flight::Noted { to: from, page });
            }
            Flight::Noted { to, page } => self.caches.get_mut(&to).unwrap().evicted(page),
        }
        self.carry_out();
    }

    fn granted(&mut self, to: NodeId, page: PageNumber, version: Version, contents: Reply) {
        self.caches.get_mut(&to).unwrap().install(page, version, contents).unwrap();
        let faulting = |task: &&mut (NodeId, Task)| {
            task.0 == to && matches!(task.1, Task::Faulting(faulted, _) if faulted == page)
        };
        let task = self.tasks.iter_mut().find(faulting).expect("a grant answers a fault");
        let Task::Faulting(_, access) = core::mem::replace(&mut task.1, Task::Free) else { unreachable!() };
        self.use_page(to, page, access);
        let cache = self.caches.get_mut(&to).unwrap();
        let answer = cache.settle(page);
        if let Some(eviction) = cache.evict() {
            let (page, version, contents) = (eviction.page, eviction.version, eviction.contents);
            self.flights.push(Flight::GiveBack { from: to, page, version, contents });
        }
        self.answered(to, answer);
    }

    fn answered(&mut self, from: NodeId, answer: Option<Answer<To>>) {
        self.flights.extend(answer.map(|Answer { to, page, contents }| match to {
            To::Invalidation => Flight::Invalidated { from, page },
            To::Recall => Flight::Recalled { from, page, contents },
        }));
    }

    fn carry_out(&mut self) {
        for directory in self.directories.values_mut() {
            self.flights.extend(core::iter::from_fn(|| directory.poll_action()).map(|action| match action {
                Action::Invalidate { to, page, version } => Flight::Invalidate { to, page, version },
                Action::Recall { to, page, version, access } => Flight::Recall { to, page, version, access },
                Action::Grant { to, page, version, contents } => {
                    Flight::Grant { to, page, version, contents }
                }
                Action::Word { .. } => unreachable!("nobody looks at words here"),
            }));
        }
    }

    fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.tasks.iter().all(|(_, task)| *task == Task::Free)
    }
}

#[test]
fn whatever_the_order_there_is_one_writer_or_many_readers_and_nobody_waits_for_ever() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(true);
        }
        assert!(world.done > STEPS / 20, "seed {seed}: only {} accesses", world.done);
        for _ in 0..STEPS {
            world.step(false);
        }
        assert!(world.is_idle(), "seed {seed}: {:?} {:?}", world.flights, world.tasks);
    }
}
