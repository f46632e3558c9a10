//! Directories and caches exchange messages that are delivered in random order.
//!
//! The network of this model keeps no order at all, which is worse than any provider. Each page holds a number, and a write
//! adds one to it. Every read must see the number of writes so far. This shows that there is one writer or many readers, and
//! that no write is lost.

use std::collections::HashMap;

use pronto::NodeId;

use crate::cache::{Cache, Response, Touch};
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

/// A message in message.
#[derive(Debug)]
enum Message {
    Request { from: NodeId, page: PageNumber, access: Access, held: Version },
    Grant { to: NodeId, page: PageNumber, version: Version, contents: Reply },
    Invalidate { to: NodeId, page: PageNumber, version: Version },
    Invalidated { from: NodeId, page: PageNumber },
    Recall { to: NodeId, page: PageNumber, version: Version, access: Access },
    Recalled { from: NodeId, page: PageNumber, contents: Reply },
    GiveBack { from: NodeId, page: PageNumber, version: Version, contents: Reply },
    Noted { to: NodeId, page: PageNumber },
}

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Task {
    Free,
    /// Tries to access the page, again if necessary.
    Trying(PageNumber, Access),
    /// Waits for the home's grant.
    Faulting(PageNumber, Access),
}

/// The kind of demand to which a cache responds.
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
    messages: Vec<Message>,
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
            messages: Vec::new(),
            written: HashMap::new(),
            done: 0,
        }
    }

    /// Runs one task or delivers one message, chosen at random. Tasks start new accesses only if `fresh`.
    fn step(&mut self, fresh: bool) {
        if self.random.below(2) == 0 && !self.messages.is_empty() {
            let index = self.random.below(self.messages.len());
            let message = self.messages.swap_remove(index);
            self.deliver(message);
        } else {
            let index = self.random.below(self.tasks.len());
            self.run(index, fresh);
        }
    }

    fn run(&mut self, index: usize, fresh: bool) {
        let (node, task) = self.tasks[index];
        let (page, access) = match task {
            Task::Faulting(..) => return,
            Task::Trying(page, access) => (page, access),
            Task::Free if !fresh => return,
            Task::Free => {
                let page = PageNumber(self.random.bits() % PAGES);
                (page, if self.random.below(3) == 0 { Access::Write } else { Access::Read })
            }
        };
        self.tasks[index].1 = match self.caches.get_mut(&node).unwrap().touch(page, access) {
            Touch::Hit => {
                self.use_page(node, page, access);
                Task::Free
            }
            Touch::Wait => Task::Trying(page, access),
            Touch::Fault { held } => {
                self.messages.push(Message::Request { from: node, page, access, held });
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

    fn deliver(&mut self, message: Message) {
        let home = |page: PageNumber| page.home(NODES);
        match message {
            Message::Request { from, page, access, held } => {
                let directory = self.directories.get_mut(&home(page)).unwrap();
                directory.handle_request(page, from, access, held, from).unwrap();
            }
            Message::Grant { to, page, version, contents } => self.granted(to, page, version, contents),
            Message::Invalidate { to, page, version } => {
                let response =
                    self.caches.get_mut(&to).unwrap().handle_invalidate(page, version, To::Invalidation);
                self.respond(to, response);
            }
            Message::Recall { to, page, version, access } => {
                let response =
                    self.caches.get_mut(&to).unwrap().handle_recall(page, version, access, To::Recall);
                self.respond(to, response);
            }
            Message::Invalidated { from, page } => {
                self.directories.get_mut(&home(page)).unwrap().handle_invalidated(page, from).unwrap();
            }
            Message::Recalled { from, page, contents } => {
                let returned = contents.map_or(Returned::Gone, Returned::Contents);
                self.directories.get_mut(&home(page)).unwrap().handle_recalled(page, from, returned).unwrap();
            }
            Message::GiveBack { from, page, version, contents } => {
                let directory = self.directories.get_mut(&home(page)).unwrap();
                match contents {
                    Some(contents) => directory.handle_flushed(page, from, version, contents).unwrap(),
                    None => directory.handle_released(page, from, version).unwrap(),
                }
                self.messages.push(Message::Noted { to: from, page });
            }
            Message::Noted { to, page } => self.caches.get_mut(&to).unwrap().evicted(page),
        }
        self.carry_out();
    }

    fn granted(&mut self, to: NodeId, page: PageNumber, version: Version, contents: Reply) {
        self.caches.get_mut(&to).unwrap().install(page, version, contents).unwrap();
        let faulting = |task: &&mut (NodeId, Task)| {
            task.0 == to && matches!(task.1, Task::Faulting(faulted, _) if faulted == page)
        };
        let task = self.tasks.iter_mut().find(faulting).expect("a grant belongs to a fault");
        let Task::Faulting(_, access) = core::mem::replace(&mut task.1, Task::Free) else { unreachable!() };
        self.use_page(to, page, access);
        let cache = self.caches.get_mut(&to).unwrap();
        let response = cache.settle(page);
        if let Some(eviction) = cache.evict() {
            let (page, version, contents) = (eviction.page, eviction.version, eviction.contents);
            self.messages.push(Message::GiveBack { from: to, page, version, contents });
        }
        self.respond(to, response);
    }

    fn respond(&mut self, from: NodeId, response: Option<Response<To>>) {
        self.messages.extend(response.map(|Response { to, page, contents }| match to {
            To::Invalidation => Message::Invalidated { from, page },
            To::Recall => Message::Recalled { from, page, contents },
        }));
    }

    fn carry_out(&mut self) {
        for directory in self.directories.values_mut() {
            self.messages.extend(core::iter::from_fn(|| directory.poll_action()).map(
                |action| match action {
                    Action::Invalidate { to, page, version } => Message::Invalidate { to, page, version },
                    Action::Recall { to, page, version, access } => {
                        Message::Recall { to, page, version, access }
                    }
                    Action::Grant { to, page, version, contents } => {
                        Message::Grant { to, page, version, contents }
                    }
                    Action::Word { .. } => unreachable!("this test reads no words"),
                },
            ));
        }
    }

    fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.tasks.iter().all(|(_, task)| *task == Task::Free)
    }
}

#[test]
fn in_any_order_there_is_one_writer_or_many_readers_and_no_task_waits_forever() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(true);
        }
        assert!(world.done > STEPS / 20, "seed {seed}: only {} accesses", world.done);
        for _ in 0..STEPS {
            world.step(false);
        }
        assert!(world.is_idle(), "seed {seed}: {:?} {:?}", world.messages, world.tasks);
    }
}
