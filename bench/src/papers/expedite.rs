//! Claims and mechanisms of one paper: Saito, Taura, Chikayama: Expedite (2004).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "expedite",
    letter: 'X',
    title: "Saito, Taura, Chikayama: Expedite (2004)",
    setting: "The paper changes Linux 2.4 on two machines of 2004; here its rules run on simulated machines, and a module for \
              a stock Linux 7 runs on one emulated machine, in virtual time and with our own budget instead of ticks.",
    rows: ROWS,
    findings: &[],
};

const SIMULATION: &str = "crates/sched-sim/src/paper/expedite.rs";
const SCATTER: &str = "crates/sched-sim/src/workload/scatter.rs";
const MODULE: &str = "kernel/expedite";
const ON_A_KERNEL: &str = "bench/src/experiments/expedite";

const ROWS: &[Row] = &[
    Row {
        id: "X1",
        place: "§1.1",
        text: "In a shared cluster a parallel application waits for the CPU, which lengthens its communication.",
        state: State::Done,
        code: &[SIMULATION, ON_A_KERNEL],
        runs: &["expedite-sim", "expedite-handler"],
        remark: "The rows without a boost.",
        ..Row::DEFAULT
    },
    Row {
        id: "X2",
        place: "§1.2",
        text: "Polling notices messages soonest, but takes the CPU from computations and from other users.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/spin.rs", "crates/sched-policy/src/policy/contention.rs"],
        runs: &["adaptive", "wait-sim", "overlap-tables"],
        remark: "Our default polls for a bounded time, less if others want the CPU.",
        ..Row::DEFAULT
    },
    Row {
        id: "X3",
        place: "§1.2",
        text: "A separate thread handles messages: it sleeps, and must be dispatched immediately when one arrives.",
        state: State::Done,
        code: &["crates/node/src/serving", "crates/node/src/threads"],
        runs: &["expedite-handler"],
        tests: &["crates/pronto/tests/lab_boost.rs::handlers_are_scheduled_as_their_tier_requires"],
        ..Row::DEFAULT
    },
    Row {
        id: "X4",
        place: "§1.2",
        text: "Kernels favour all threads that often sleep alike, so a handler competes with them.",
        state: State::Done,
        code: &["crates/sched-sim/src/scheduler/linux2"],
        runs: &["expedite-sim", "expedite-fig1"],
        tests: &["crates/sched-sim/src/scheduler/linux2/tests.rs::the_counter_of_a_sleeper_converges"],
        ..Row::DEFAULT
    },
    Row {
        id: "X5",
        place: "§1.2",
        text: "A thread that wakes now and then does not notice a few hundred microseconds.",
        state: State::Done,
        code: &["bench/src/expedite/victim.rs", "bench/src/experiments/expedite/pairs.rs"],
        runs: &["expedite-fig4"],
        remark: "The victim is cyclictest; hackbench and the sleepers' own delays are in the rows.",
        statements: &[Statement {
            id: "X5",
            text: "A thread that wakes now and then wakes later by less than a few hundred microseconds",
            published: Published::Text("a few hundred us"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X6",
        place: "§3.1",
        text: "A program flags a socket with `fcntl`, as on any Unix.",
        state: State::Done,
        code: &["crates/expedite-preload/src/lib.rs"],
        runs: &["expedite-mpi"],
        tests: &["crates/expedite-preload/tests/lab_preload.rs::the_flag_of_the_paper_boosts"],
        remark: "A module cannot extend `fcntl`, so a preloaded library replaces the function: `O_EXPEDITE` is stripped, the other \
                 flags are kept, and `F_GETFL` shows it. Programs that know nothing of the flag are served by `pronto expedite run`.",
        ..Row::DEFAULT
    },
    Row {
        id: "X7",
        place: "§3.3",
        text: "The thread that reads from, or selects on, a flagged socket is boosted.",
        state: State::Done,
        code: &["kernel/expedite/waiters.c"],
        runs: &["expedite-fig2"],
        tests: &[
            "crates/expedite/tests/lab/waiting.rs::a_thread_in_read_is_boosted",
            "crates/expedite/tests/lab/waiting.rs::a_thread_in_poll_is_boosted",
            "crates/expedite/tests/lab/waiting.rs::a_thread_in_epoll_wait_is_boosted",
            "crates/expedite/tests/lab/waiting.rs::a_thread_that_waits_for_io_uring_is_boosted",
        ],
        remark: "Also in `epoll_wait` and with io_uring.",
        statements: &[Statement {
            id: "X7",
            text: "Share of the pings whose reader is boosted, although another thread set the flag",
            published: Published::Number(1.0),
        }],
    },
    Row {
        id: "X8",
        place: "§3.3",
        text: "The boost ranks a thread above all others.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/counter_rule.rs", "kernel/expedite/threads"],
        tests: &[
            "crates/sched-sim/src/scheduler/linux2/tests.rs::raised_tasks_go_before_all_others_and_preempt",
            "crates/expedite/tests/lab/class.rs::a_boosted_thread_is_real_time_and_gets_its_class_back",
        ],
        remark: "On a kernel of today: the lowest real-time priority, above all ordinary threads and below those that are \
                 real-time by themselves.",
        ..Row::DEFAULT
    },
    Row {
        id: "X9",
        place: "§3.3",
        text: "A boost lasts until the thread is dispatched.",
        state: State::Partly,
        code: &["crates/sched-sim/src/policy/counter_rule.rs", "crates/sched-policy/src/policy/boost.rs"],
        runs: &["expedite-fig2"],
        tests: &[
            "crates/sched-policy/src/policy/boost.rs::the_readings_of_the_paper_differ_in_when_the_boost_ends",
        ],
        remark: "Exact in the simulation. The module's boost goes on until the handler waits again, for at most 200 us: a \
                 thread lowered at its dispatch would compete again before it has read its message.",
        statements: &[Statement {
            id: "X9",
            text: "A boost lasts until the thread is dispatched",
            published: Published::Text("until dispatched"),
        }],
    },
    Row {
        id: "X10",
        place: "§3.3",
        text: "Only a thread with ten or eleven ticks, which runs seldom, is boosted.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/counter_rule.rs", "crates/sched-policy/src/policy/budget.rs"],
        runs: &["expedite-sim"],
        tests: &["crates/sched-policy/src/policy/budget.rs::ten_or_eleven_ticks_are_needed"],
        remark: "A kernel of today has no ticks: the module has a budget, of boosted time, or of all time with \
                 `sleepers_only=1`.",
        ..Row::DEFAULT
    },
    Row {
        id: "X11",
        place: "§3.4",
        text: "The slice of a boost is at most one tick, 10 ms.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/boost.rs"],
        tests: &[
            "crates/sched-policy/src/policy/boost.rs::a_slice_is_cpu_time_and_ends_in_a_drop",
            "crates/sched-sim/src/paper/expedite/tests.rs::a_boost_ends_with_its_slice",
            "crates/expedite/tests/lab_latency/main.rs::a_flag_can_shorten_the_slice_but_not_extend_it",
        ],
        remark: "Our slice is 200 us of CPU time.",
        ..Row::DEFAULT
    },
    Row {
        id: "X12",
        place: "§3.2",
        text: "Half of the ticks left is carried into the next epoch, so those of a sleeper converge to eleven.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/budget.rs", "crates/sched-sim/src/scheduler/linux2"],
        tests: &[
            "crates/sched-policy/src/policy/budget.rs::a_sleeper_converges_to_eleven_ticks",
            "crates/sched-policy/tests/budget.rs::every_short_history_agrees_with_the_model",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "X13",
        place: "§3.4",
        text: "A thread of low priority passes those of high priority, but briefly.",
        state: State::Done,
        code: &["bench/src/experiments/expedite/nice.rs"],
        runs: &["expedite-nice"],
        statements: &[Statement {
            id: "X13",
            text: "A flagged handler of low priority passes those of high priority, briefly",
            published: Published::Text("briefly"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X14",
        place: "§3.4",
        text: "Blocking and unblocking often gains nothing.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/caps.rs"],
        runs: &["expedite-fig5"],
        tests: &[
            "crates/expedite/tests/lab/hostile.rs::many_threads_gain_nothing",
            "crates/expedite/tests/lab/hostile.rs::flagging_anew_gains_nothing",
            "crates/expedite/tests/lab/hostile.rs::a_new_thread_per_message_gains_nothing",
            "crates/sched-policy/tests/boost.rs::hogs_get_most_of_their_cap_and_never_more",
        ],
        remark: "The tests try to exceed the caps with many threads, forks and tiny messages. The experiment has one handler \
                 and 40 messages per second.",
        statements: &[Statement {
            id: "X14",
            text: "A handler that computes most gains nothing from its boosts",
            published: Published::Text("nothing"),
        }],
    },
    Row {
        id: "X15",
        place: "§3.1",
        text: "The change is small and fits other systems with priorities and kernel threads.",
        state: State::Done,
        code: &[MODULE, "crates/expedite/src/tiers.rs"],
        tests: &[
            "crates/expedite/tests/lab_tiers.rs::the_module_is_best_then_fifo_then_a_slice",
            "crates/expedite/tests/tiers.rs::a_missing_module_is_reported",
        ],
        remark: "A module for a stock kernel, a BPF scheduler where modules are forbidden, and weaker means without both: always \
                 real-time, or a short slice.",
        ..Row::DEFAULT
    },
    Row {
        id: "X16",
        place: "§2",
        text: "A boost for every thread that unblocks leaves the problem.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/unblocked.rs"],
        runs: &["expedite-sim"],
        tests: &["crates/sched-sim/src/policy/unblocked.rs::a_task_that_unblocks_precedes_computing_ones"],
        statements: &[Statement {
            id: "X16",
            text: "Late pings if every thread that unblocks is boosted, as a multiple of those without",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X17",
        place: "§2",
        text: "A real-time class guarantees dispatch, and is unfair.",
        state: State::Done,
        code: &["crates/expedite/src/fifo.rs", "bench/src/experiments/expedite/computing.rs"],
        runs: &["expedite-fig5"],
        statements: &[Statement {
            id: "X17",
            text: "A real-time class delays no ping and takes the CPU from the background",
            published: Published::Text("unfair"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X18",
        place: "§2",
        text: "Proportion and period must be known in advance.",
        state: State::Done,
        code: &["crates/expedite/src/schedule.rs", "bench/src/experiments/expedite/computing.rs"],
        runs: &["expedite-fig5"],
        remark: "`SCHED_DEADLINE`, with the same 1 ms in each 10 for handlers that need less and for those that need more. \
                 Soft timers are not repeated.",
        statements: &[Statement {
            id: "X18",
            text: "A reservation helps only as far as it was estimated in advance",
            published: Published::Text("an estimate"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X19",
        place: "§3.5",
        text: "The handler thread forwards collective operations, such as scatter and broadcast, along a tree.",
        state: State::Partly,
        code: &[SCATTER],
        runs: &["expedite-sim"],
        remark: "Simulated only: the library has calls to several peers, but no collective operation that handlers forward.",
        ..Row::DEFAULT
    },
    Row {
        id: "X20",
        place: "§3.5",
        text: "Get, put and accumulate on the memory of a remote rank gain more.",
        state: State::Partly,
        code: &["rpc/src/one_sided.rs"],
        tests: &["crates/pronto/tests/one_sided.rs::check"],
        remark: "Reads, writes, compare-and-swap and fetch-and-add of eight bytes exist. They are not measured with a target \
                 that computes, polling, sleeping or boosted.",
        ..Row::DEFAULT
    },
    Row {
        id: "X21",
        place: "§3.5",
        text: "Load distribution, shared memory and data migration gain as well.",
        state: State::Partly,
        code: &["crates/minidos"],
        remark: "Shared memory and migration of tasks exist and are not measured with a boost. Load distribution is missing.",
        ..Row::DEFAULT
    },
    Row {
        id: "X22",
        place: "§4, §4.1",
        text: "500 B every 50 ms between two machines, with a process that computes and two that compute for 5 ms and sleep for 45.",
        state: State::Partly,
        code: &["bench/src/expedite", ON_A_KERNEL],
        runs: &[
            "expedite-sim",
            "expedite-fig1",
            "expedite-fig2",
            "expedite-fig3",
            "expedite-fig4",
            "expedite-fig5",
        ],
        remark: "Exact in the simulation. On a kernel: pings every 5 ms in figures 1 and 2, every 25 in figure 5, each \
                 interval varied by a fifth; up to 16 sleepers in figures 1 and 2, 4 in figures 3 and 4; the delay of one way \
                 instead of the round trip; one emulated machine.",
        ..Row::DEFAULT
    },
    Row {
        id: "X23",
        place: "Fig. 1a",
        text: "A background that only computes delays no ping.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/pings.rs"],
        runs: &["expedite-sim", "expedite-fig1", "expedite-fig2"],
        tests: &["crates/sched-sim/src/paper/expedite/tests.rs::compute_only_causes_no_delays"],
        remark: "EEVDF of today delays some pings by a slice.",
        statements: &[Statement {
            id: "X23",
            text: "Share of pings that a compute-only process delays by a millisecond",
            published: Published::Number(0.0),
        }],
    },
    Row {
        id: "X24",
        place: "Fig. 1b",
        text: "Processes that mostly sleep delay pings by milliseconds, up to 5.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/pings.rs"],
        runs: &["expedite-sim", "expedite-fig1", "expedite-fig2"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::sleepers_delay_by_up_to_five_milliseconds",
            "crates/sched-sim/src/paper/expedite/tests.rs::sleepers_that_begin_anywhere_delay_by_milliseconds_and_without_the_ceiling",
        ],
        remark: "The ceiling of 5 ms follows if the two sleepers never compute at the same time, which the paper does not say. \
                 The simulation is judged with sleepers that begin anywhere. EEVDF needs more sleepers than two.",
        statements: &[Statement {
            id: "X24",
            text: "Processes that mostly sleep delay pings by milliseconds: longest delay, ms",
            published: Published::Number(5.0),
        }],
    },
    Row {
        id: "X25",
        place: "Fig. 2",
        text: "With Expedite no ping is late.",
        state: State::Done,
        code: &[
            SIMULATION,
            "bench/src/experiments/expedite/pings.rs",
            "bench/src/experiments/expedite/late.rs",
        ],
        runs: &["expedite-sim", "expedite-fig2", "expedite-late"],
        tests: &["crates/sched-sim/src/paper/expedite/tests.rs::boosts_remove_the_delays"],
        remark: "On a kernel the bar is the share with a real-time class, because the clock of two emulated CPUs makes some \
                 late.",
        statements: &[
            Statement {
                id: "X25",
                text: "Share of late pings with Expedite",
                published: Published::Number(0.0),
            },
            Statement {
                id: "X25-rare",
                text: "Share of late pings of 10,000 with Expedite, on one CPU",
                published: Published::Number(0.0),
            },
        ],
    },
    Row {
        id: "X26",
        place: "Fig. 3",
        text: "Nine flagged pairs of ten stop suffering.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/pairs.rs"],
        runs: &["expedite-sim", "expedite-fig3"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::nine_flagged_pairs_hurt_the_tenth_less_than_sleepers_do",
        ],
        statements: &[Statement {
            id: "X26",
            text: "Share of late pings of nine flagged pairs",
            published: Published::Number(0.0),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X27",
        place: "Fig. 4",
        text: "The tenth pair, not flagged, suffers slightly.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/pairs.rs"],
        runs: &["expedite-sim", "expedite-fig4"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::nine_flagged_pairs_hurt_the_tenth_less_than_sleepers_do",
        ],
        statements: &[Statement {
            id: "X27",
            text: "The tenth pair, not flagged, suffers slightly",
            published: Published::Text("slightly"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X28",
        place: "§4.3",
        text: "The background loses less than one per cent.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/pairs.rs"],
        runs: &["expedite-sim", "expedite-fig4"],
        statements: &[
            Statement {
                id: "X28",
                text: "Share of its work that the background loses, below",
                published: Published::Number(0.01),
            },
            Statement {
                id: "X28-judge",
                text: "The kernel's accounting of that loss agrees",
                published: Published::Nothing,
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "X29",
        place: "Fig. 5",
        text: "A handler that computes 1.6 ms per message loses the boost.",
        state: State::Done,
        code: &[SIMULATION, "bench/src/experiments/expedite/computing.rs"],
        runs: &["expedite-sim", "expedite-fig5"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::extra_computing_loses_the_boost_by_budget_and_keeps_it_by_counter",
        ],
        remark: "By the printed rule such a handler keeps its boosts: it loses less than a tick per epoch. Our budget for \
                 threads that use little CPU does what the paper intends.",
        statements: &[
            Statement {
                id: "X29",
                text: "With 1.6 ms of computation per message delays are as frequent as without Expedite",
                published: Published::Text("as frequent"),
            },
            Statement {
                id: "X29-intent",
                text: "With our budget for threads that use little CPU, most boosts are lost",
                published: Published::Nothing,
            },
            Statement {
                id: "X29-ours",
                text: "By our own rule the handler keeps its boosts",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "X30",
        place: "§5.1",
        text: "MPICH polls inside calls only, so a late call delays the ranks behind it.",
        state: State::Done,
        code: &[SCATTER],
        runs: &["expedite-sim", "pioman-fig3"],
        tests: &[
            "crates/pronto/tests/rendezvous.rs::without_an_engine_a_message_waits_for_a_call_by_its_receiver",
        ],
        remark: "Simulated, and on a real node without an engine.",
        ..Row::DEFAULT
    },
    Row {
        id: "X31",
        place: "Fig. 6",
        text: "A scatter of eight goes along a tree: 4, 2 and 1 below 0, 6 and 5 below 4, 3 below 2, 7 below 6.",
        state: State::Done,
        code: &[SCATTER],
        tests: &["crates/sched-sim/src/workload/scatter.rs::the_tree_of_eight_is_the_paper_s"],
        ..Row::DEFAULT
    },
    Row {
        id: "X32",
        place: "Fig. 7",
        text: "In a scatter, a loaded rank delays the ranks behind it only.",
        state: State::Partly,
        code: &[SIMULATION, SCATTER],
        runs: &["expedite-sim"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::a_handler_thread_and_a_boost_take_the_wait_away",
        ],
        remark: "35,000 rounds and the paper's measure, on simulated machines only, not among eight nodes.",
        statements: &[Statement {
            id: "X32",
            text: "The loaded rank delays the ranks behind it, and no others",
            published: Published::Text("behind rank 4 only"),
        }],
    },
    Row {
        id: "X33",
        place: "§5",
        text: "Of over 6 ms a handler thread removes over 5, 500 us remain, and Expedite removes almost all of the rest.",
        state: State::Partly,
        code: &[SIMULATION, SCATTER],
        runs: &["expedite-sim"],
        tests: &[
            "crates/sched-sim/src/paper/expedite/tests.rs::a_handler_thread_and_a_boost_take_the_wait_away",
        ],
        remark: "Simulated only. The paper does not state what `top` costs: the cost was fitted to the wait of over 6 ms. That \
                 wait is not judged here, and the other values follow from it.",
        statements: &[
            Statement { id: "X33", text: "All three of X33b to X33d", published: Published::Nothing },
            Statement {
                id: "X33b",
                text: "A blocking handler thread removes of the wait behind the loaded rank, ms",
                published: Published::Number(5.0),
            },
            Statement { id: "X33c", text: "Wait that remains then, us", published: Published::Number(500.0) },
            Statement {
                id: "X33d",
                text: "With Expedite, time as a multiple of that without background",
                published: Published::Text("almost 1"),
            },
        ],
    },
];
