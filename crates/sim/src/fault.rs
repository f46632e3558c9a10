//! All injectable faults, by name.

use core::ops::AddAssign;

use pronto_core::Nanos;

use crate::random::{Random, Span};
use crate::world::{LinkId, SimNode};

/// A fault. Scheduled with [`crate::SimWorld::schedule`], or injected now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One connection is lost, with all frames in flight; both ends are notified.
    Cut(LinkId),
    /// All connections between two nodes are lost.
    CutBetween(SimNode, SimNode),
    /// Nothing passes from one node to another; the other direction is open.
    BlockOneWay {
        /// Node whose frames are held.
        from: SimNode,
        /// Node that does not get them.
        to: SimNode,
    },
    /// Nothing passes between two nodes.
    Partition(SimNode, SimNode),
    /// Both directions between two nodes are open again, and damage no message.
    Heal(SimNode, SimNode),
    /// The process of a node dies; its system closes its connections.
    CrashProcess(SimNode),
    /// The machine of a node dies: no peer is notified.
    CrashMachine(SimNode),
    /// A dead node restarts, as a new incarnation.
    Restart(SimNode),
    /// A node makes no turn for a time, as if stopped or starved.
    Pause {
        /// The node.
        node: SimNode,
        /// Duration.
        span: Nanos,
    },
    /// The machine of a node is suspended: it makes no turn, and its clock stands still, as Linux' monotonic clock
    /// does. Connections remain, and messages to it wait.
    Suspend {
        /// The node.
        node: SimNode,
        /// Duration.
        span: Nanos,
    },
    /// The connections from one node to another take no message for a time: each post is refused for lack of room.
    Full {
        /// The node whose posts are refused.
        from: SimNode,
        /// The node that its connections lead to.
        to: SimNode,
        /// Duration.
        span: Nanos,
    },
    /// The next message from one node to another arrives with a header that no sender makes.
    Damage {
        /// The sender of the message.
        from: SimNode,
        /// Its receiver.
        to: SimNode,
    },
    /// The system of a node makes no send memory ready for a time, as if memory, or what a process may lock, were exhausted.
    Exhaust {
        /// The node.
        node: SimNode,
        /// Duration.
        span: Nanos,
    },
    /// The clock of a node leaps forward, as that of a virtual machine may after it was moved to another host.
    Leap {
        /// The node.
        node: SimNode,
        /// Distance.
        by: Nanos,
    },
    /// Every turn of a node is late by this time, until changed.
    Slow {
        /// The node.
        node: SimNode,
        /// Delay; zero ends it.
        by: Nanos,
    },
}

/// Counters of faults that have happened: a fault test asserts that its fault did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Connections that were cut.
    pub cuts: u64,
    /// Directions that were blocked.
    pub blocks: u64,
    /// Directions that were opened again.
    pub heals: u64,
    /// Frames that waited for a blocked direction.
    pub stalled_frames: u64,
    /// Connections that were given up because frames did not pass.
    pub given_up: u64,
    /// Processes and machines that died.
    pub crashes: u64,
    /// Nodes that were restarted.
    pub restarts: u64,
    /// Pauses.
    pub pauses: u64,
    /// Machines that were suspended.
    pub suspends: u64,
    /// Slow-downs.
    pub slowdowns: u64,
    /// Frames that were delayed by a spike.
    pub spikes: u64,
    /// Times during which connections took no message.
    pub fulls: u64,
    /// Posts that were refused during such a time.
    pub refused_posts: u64,
    /// Messages that arrived with a damaged header.
    pub damaged: u64,
    /// Clocks that leapt forward.
    pub leaps: u64,
    /// Times during which a system made no memory ready.
    pub exhaustions: u64,
    /// Requests for memory that were refused during such a time.
    pub refused_memory: u64,
}

impl Fired {
    /// Returns every counter.
    pub const fn each(&self) -> [u64; 17] {
        let Self {
            cuts,
            blocks,
            heals,
            stalled_frames,
            given_up,
            crashes,
            restarts,
            pauses,
            suspends,
            slowdowns,
            spikes,
            fulls,
            refused_posts,
            damaged,
            leaps,
            exhaustions,
            refused_memory,
        } = *self;
        [
            cuts,
            blocks,
            heals,
            stalled_frames,
            given_up,
            crashes,
            restarts,
            pauses,
            suspends,
            slowdowns,
            spikes,
            fulls,
            refused_posts,
            damaged,
            leaps,
            exhaustions,
            refused_memory,
        ]
    }
}

impl AddAssign for Fired {
    fn add_assign(&mut self, more: Self) {
        self.cuts += more.cuts;
        self.blocks += more.blocks;
        self.heals += more.heals;
        self.stalled_frames += more.stalled_frames;
        self.given_up += more.given_up;
        self.crashes += more.crashes;
        self.restarts += more.restarts;
        self.pauses += more.pauses;
        self.suspends += more.suspends;
        self.slowdowns += more.slowdowns;
        self.spikes += more.spikes;
        self.fulls += more.fulls;
        self.refused_posts += more.refused_posts;
        self.damaged += more.damaged;
        self.leaps += more.leaps;
        self.exhaustions += more.exhaustions;
        self.refused_memory += more.refused_memory;
    }
}

/// Mean interval of each fault in a random plan; `None` by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// All connections of a random pair of nodes are cut.
    pub cut: Option<Nanos>,
    /// A random pair of nodes is partitioned, for a time within the span.
    pub partition: Option<(Nanos, Span)>,
    /// Like `partition`, in one direction only.
    pub one_way: Option<(Nanos, Span)>,
    /// The process of a random node, or its machine, dies and restarts after a time within the span.
    pub crash: Option<(Nanos, Span)>,
    /// A random node stops for a time within the span.
    pub pause: Option<(Nanos, Span)>,
    /// The machine of a random node is suspended for a time within the span.
    pub suspend: Option<(Nanos, Span)>,
    /// The connections from a random node to another take no message for a time within the span.
    pub full: Option<(Nanos, Span)>,
    /// A random pair of nodes is cut, its next connections take no message, and are cut, too, within the span.
    pub starved: Option<(Nanos, Span)>,
    /// A random node is slow, by the second time, for a time within the span.
    pub slow: Option<(Nanos, Nanos, Span)>,
    /// The next message from a random node to another is damaged.
    pub damage: Option<Nanos>,
    /// The clock of a random node leaps forward, by a time within the span.
    pub leap: Option<(Nanos, Span)>,
    /// The system of a random node makes no memory ready for a time within the span.
    pub exhaust: Option<(Nanos, Span)>,
}

impl FaultRates {
    /// Returns a plan for `duration` between `nodes`: times and faults, in order. Everything is healed at the end of
    /// the plan, or a little later.
    pub fn plan(&self, nodes: &[SimNode], duration: Nanos, seed: u64) -> Vec<(Nanos, Fault)> {
        let mut plan = Vec::new();
        let mut random = Random::new(seed ^ 0xfa17);
        self.plan_between(nodes, duration, &mut random, &mut plan);
        self.plan_at(nodes, duration, &mut random, &mut plan);
        plan.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Plans the faults between two nodes.
    fn plan_between(
        &self,
        nodes: &[SimNode],
        duration: Nanos,
        random: &mut Random,
        plan: &mut Vec<(Nanos, Fault)>,
    ) {
        if let Some(every) = self.cut {
            strike(random, every, duration, |random, at| {
                let (a, b) = pair(random, nodes);
                plan.push((at, Fault::CutBetween(a, b)));
            });
        }
        for (rates, one_way) in [(self.partition, false), (self.one_way, true)] {
            let Some((every, lasting)) = rates else { continue };
            strike(random, every, duration, |random, at| {
                let (a, b) = pair(random, nodes);
                let begin =
                    if one_way { Fault::BlockOneWay { from: a, to: b } } else { Fault::Partition(a, b) };
                plan.extend([(at, begin), (at + random.within(lasting), Fault::Heal(a, b))]);
            });
        }
        if let Some((every, span)) = self.full {
            strike(random, every, duration, |random, at| {
                let (from, to) = pair(random, nodes);
                plan.push((at, Fault::Full { from, to, span: random.within(span) }));
            });
        }
        if let Some((every, span)) = self.starved {
            strike(random, every, duration, |random, at| {
                let (a, b) = pair(random, nodes);
                let (full, lasts) = (random.within(span), random.within(span));
                plan.extend([
                    (at, Fault::CutBetween(a, b)),
                    (at, Fault::Full { from: a, to: b, span: full }),
                    (at, Fault::Full { from: b, to: a, span: random.within(span) }),
                    (at + lasts, Fault::CutBetween(a, b)),
                ]);
            });
        }
        if let Some(every) = self.damage {
            strike(random, every, duration, |random, at| {
                let (from, to) = pair(random, nodes);
                plan.push((at, Fault::Damage { from, to }));
            });
        }
    }

    /// Plans the faults of single nodes.
    fn plan_at(
        &self,
        nodes: &[SimNode],
        duration: Nanos,
        random: &mut Random,
        plan: &mut Vec<(Nanos, Fault)>,
    ) {
        if let Some((every, down)) = self.crash {
            strike(random, every, duration, |random, at| {
                let node = one(random, nodes);
                let crash =
                    if random.one_in(3) { Fault::CrashMachine(node) } else { Fault::CrashProcess(node) };
                plan.extend([(at, crash), (at + random.within(down), Fault::Restart(node))]);
            });
        }
        if let Some((every, span)) = self.pause {
            strike(random, every, duration, |random, at| {
                plan.push((at, Fault::Pause { node: one(random, nodes), span: random.within(span) }));
            });
        }
        if let Some((every, span)) = self.suspend {
            strike(random, every, duration, |random, at| {
                plan.push((at, Fault::Suspend { node: one(random, nodes), span: random.within(span) }));
            });
        }
        if let Some((every, by, span)) = self.slow {
            strike(random, every, duration, |random, at| {
                let node = one(random, nodes);
                let end = Fault::Slow { node, by: Nanos::ZERO };
                plan.extend([(at, Fault::Slow { node, by }), (at + random.within(span), end)]);
            });
        }
        if let Some((every, span)) = self.leap {
            strike(random, every, duration, |random, at| {
                plan.push((at, Fault::Leap { node: one(random, nodes), by: random.within(span) }));
            });
        }
        if let Some((every, span)) = self.exhaust {
            strike(random, every, duration, |random, at| {
                plan.push((at, Fault::Exhaust { node: one(random, nodes), span: random.within(span) }));
            });
        }
    }
}

/// Calls `fault` at random times with a mean interval of `every`.
fn strike(random: &mut Random, every: Nanos, duration: Nanos, mut fault: impl FnMut(&mut Random, Nanos)) {
    let gap = Span { min: Nanos(1), max: every + every };
    let mut at = random.within(gap);
    while at < duration {
        fault(random, at);
        at = at + random.within(gap);
    }
}

fn one(random: &mut Random, nodes: &[SimNode]) -> SimNode {
    let index = random.below(nodes.len() as u64);
    nodes[usize::try_from(index).expect("below a length")]
}

fn pair(random: &mut Random, nodes: &[SimNode]) -> (SimNode, SimNode) {
    assert!(nodes.len() >= 2, "faults between nodes need two of them");
    let a = one(random, nodes);
    let others: Vec<_> = nodes.iter().copied().filter(|node| *node != a).collect();
    (a, one(random, &others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_ordered_seeded_and_heals() {
        let nodes = [SimNode(0), SimNode(1), SimNode(2)];
        let span = Span::millis(1, 20);
        let every = Nanos::from_millis(50);
        let rates = FaultRates {
            cut: Some(every),
            partition: Some((every, span)),
            one_way: Some((every, span)),
            crash: Some((every, span)),
            pause: Some((every, span)),
            suspend: Some((every, span)),
            full: Some((every, span)),
            starved: Some((every, span)),
            slow: Some((every, Nanos::from_millis(1), span)),
            damage: Some(every),
            leap: Some((every, span)),
            exhaust: Some((every, span)),
        };
        let plan = rates.plan(&nodes, Nanos::from_secs(1), 7);
        assert_eq!(plan, rates.plan(&nodes, Nanos::from_secs(1), 7));
        assert_ne!(plan, rates.plan(&nodes, Nanos::from_secs(1), 8));
        assert!(plan.is_sorted_by_key(|(at, _)| *at));
        let count = |which: fn(&Fault) -> bool| plan.iter().filter(|(_, fault)| which(fault)).count();
        let begun = count(|fault| matches!(fault, Fault::Partition(..) | Fault::BlockOneWay { .. }));
        assert!(begun > 10);
        assert_eq!(begun, count(|fault| matches!(fault, Fault::Heal(..))));
        let [processes, machines] = [
            count(|fault| matches!(fault, Fault::CrashProcess(_))),
            count(|fault| matches!(fault, Fault::CrashMachine(_))),
        ];
        assert!(processes > 3 && machines > 0, "{processes} processes, {machines} machines");
        assert_eq!(processes + machines, count(|fault| matches!(fault, Fault::Restart(_))));
        assert_eq!(FaultRates::default().plan(&nodes, Nanos::from_secs(1), 7), []);
    }
}
