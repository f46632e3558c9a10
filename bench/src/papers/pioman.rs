//! Claims and mechanisms of one paper: Trahay, Denis, Aumage, Namyst: PIOMan (2007).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "pioman",
    letter: 'P',
    title: "Trahay, Denis, Aumage, Namyst: PIOMan (2007)",
    setting: "The paper connects two dual-core Opterons by Myri-10G; here two processes of one machine use shared memory and loopback TCP, \
              and two nodes of the lab soft-RoCE. The computation has one CPU, everything else another one.",
    rows: ROWS,
    findings: &[],
};

const ROWS: &[Row] = &[
    Row {
        id: "P1",
        place: "§1",
        text: "Requests that are submitted apart from their processing can be optimised together.",
        state: State::Done,
        code: &["comm-core/src/session/engine/doorbells.rs", "crates/ring/src"],
        runs: &["rate"],
        tests: &["crates/pronto/tests/together.rs::batched_calls_share_a_doorbell"],
        remark: "Messages share doorbells and, over TCP, writes. They are neither merged into one work request nor reordered.",
        ..Row::DEFAULT
    },
    Row {
        id: "P2",
        place: "§1",
        text: "One library multiplexes flows over several kinds of network.",
        state: State::Done,
        code: &["crates/node/src/links", "crates/node/src/rdma"],
        tests: &[
            "crates/pronto/tests/calls.rs::shm_block",
            "crates/pronto/tests/calls.rs::tcp_block",
            "daemon/tests/lab.rs::a_deleted_device_is_released_and_tcp_replaces_it",
        ],
        remark: "A peer has one transport at a time, chosen at run time; no message is split over several.",
        ..Row::DEFAULT
    },
    Row {
        id: "P3",
        place: "§2",
        text: "A poll is cheap, but thousands of empty ones are not.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/spin.rs", "comm-core/src/wait/attempt.rs"],
        runs: &["adaptive"],
        tests: &[
            "comm-core/src/wait/attempt.rs::an_adaptive_wait_polls_for_its_bound_and_sleeps_within_the_safety_net",
        ],
        statements: &[Statement {
            id: "P3",
            text: "At short gaps, adaptive waits are as quick as spinning",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P4",
        place: "§2",
        text: "Passive waiting costs an interrupt and context switches.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/spin.rs", "comm-core/src/wait/sleep.rs"],
        runs: &["adaptive"],
        tests: &[
            "comm-core/src/wait/history.rs::long_waits_sleep_immediately_and_unmeasured_short_ones_restore_polling",
        ],
        statements: &[Statement {
            id: "P4",
            text: "At long gaps, adaptive waits are as quick as sleeping",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P5",
        place: "§2",
        text: "A woken thread may be scheduled late, for example after it has computed for long.",
        state: State::Done,
        code: &["crates/node/src/threads/boost.rs"],
        runs: &["adaptive"],
        tests: &["crates/pronto/tests/lab_boost.rs::handlers_are_scheduled_as_their_tier_requires"],
        statements: &[
            Statement {
                id: "P5a",
                text: "A boost lowers the p99 of adaptive waits among computing processes",
                published: Published::Nothing,
            },
            Statement {
                id: "P5b",
                text: "Alone, a service with a real-time boost is as quick as a sleeping one without",
                published: Published::Nothing,
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P6",
        place: "§2",
        text: "A pure user-level scheduler must not block in the kernel.",
        state: State::NotApplicable,
        remark: "Pronto runs on kernel threads and has no thread scheduler of its own.",
        ..Row::DEFAULT
    },
    Row {
        id: "P7",
        place: "§2",
        text: "On a loaded machine a polling thread is rarely scheduled.",
        state: State::Done,
        code: &["crates/node/src/waits/contention.rs", "crates/sched-policy/src/policy/contention.rs"],
        runs: &["adaptive"],
        tests: &[
            "crates/sched-sim/tests/contended_waits.rs::under_contention_its_slowest_calls_are_as_fast_as_sleeping_ones",
        ],
        statements: &[Statement {
            id: "P7",
            text: "Among computing processes, the p99 of adaptive waits is that of sleeping",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P8",
        place: "§2",
        text: "A rendezvous progresses only if somebody polls regularly.",
        state: State::Done,
        code: &["crates/progress/src/manager.rs", "comm-core/src/session/rendezvous"],
        runs: &["pioman-fig3"],
        tests: &[
            "crates/pronto/tests/rendezvous.rs::without_an_engine_a_message_waits_for_a_call_by_its_receiver",
        ],
        remark: "The engine `none` is the case without progress in the background.",
        statements: &[Statement {
            id: "P8",
            text: "Without an engine, senders wait until the receiver has computed",
            published: Published::Text("all"),
        }],
    },
    Row {
        id: "P9",
        place: "§3",
        text: "Detecting events is a service, so that libraries need not care about threads and CPUs.",
        state: State::Done,
        code: &["crates/progress/src"],
        tests: &[
            "crates/pronto/tests/sources.rs::a_programs_sources_are_polled_together_with_its_peers",
            "comm-core/src/wait/loom_tests/sleep.rs::loom_no_event_of_any_source_is_lost",
        ],
        remark: "The manager knows no protocol and no transport; peers are sources like any other.",
        ..Row::DEFAULT
    },
    Row {
        id: "P10",
        place: "§3",
        text: "The manager works with a two-level thread scheduler, and can favour a thread for some time.",
        state: State::Partly,
        code: &["crates/progress/src/source.rs", "crates/node/src/threads/boost.rs"],
        tests: &[
            "crates/progress/tests/engine/triggers.rs::without_an_engine_only_threads_that_wait_or_yield_poll",
        ],
        remark: "Programs bring their own threads, so no trigger stands for their context switches; decision 0009 names what stands \
                 in for the other hooks. A boost favours a thread.",
        ..Row::DEFAULT
    },
    Row {
        id: "P11",
        place: "§3",
        text: "There are three builds: without threads, with user-level threads (mono), and SMP.",
        state: State::Done,
        code: &["crates/progress/src/manager.rs", "crates/progress/src/engine_threads.rs"],
        runs: &["pioman-table2"],
        tests: &[
            "crates/progress/tests/engine/triggers.rs::without_an_engine_only_threads_that_wait_or_yield_poll",
            "crates/progress/tests/engine/triggers.rs::a_timer_polls_for_a_program_that_never_calls",
            "crates/progress/tests/engine/idle.rs::an_idle_engine_with_a_thousand_sources_sleeps",
        ],
        remark: "They are the engines `none`, `timer` and `idle`, chosen when a node starts.",
        ..Row::DEFAULT
    },
    Row {
        id: "P12",
        place: "Fig. 1",
        text: "A program registers callbacks, submits requests, and waits or computes while the scheduler has them polled.",
        state: State::Done,
        code: &["crates/progress/src/manager.rs", "rpc/src/rendezvous"],
        tests: &[
            "crates/pronto/tests/sources.rs::a_programs_sources_are_polled_together_with_its_peers",
            "crates/pronto/tests/rendezvous.rs::a_computing_receiver_does_not_delay_the_sender",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P13",
        place: "§3.1",
        text: "One controller polls, so that threads do not poll a network concurrently.",
        state: State::Done,
        code: &["crates/progress/src/poller.rs", "comm-core/src/wait/poller_role.rs"],
        tests: &[
            "crates/sync/src/loom_tests.rs::loom_try_lock_excludes",
            "comm-core/src/wait/loom_tests/poller_role.rs::loom_three_waiters_are_all_served",
        ],
        remark: "One try-lock is around all sources; callers take turns in polling their own peer.",
        ..Row::DEFAULT
    },
    Row {
        id: "P14",
        place: "§3.1",
        text: "The manager knows all requests, and polls for several together.",
        state: State::Done,
        code: &["crates/progress/src/poller.rs", "crates/progress/src/group.rs"],
        tests: &[
            "crates/progress/tests/engine/triggers.rs::sources_behind_the_epoll_are_checked_once_per_interval_of_polling",
        ],
        remark: "One poll of a peer serves all its calls, and one epoll all sources whose poll is a system call.",
        ..Row::DEFAULT
    },
    Row {
        id: "P15",
        place: "§3.1",
        text: "The scheduler preempts a computing task to poll.",
        state: State::Done,
        code: &["crates/progress/src/engine_threads.rs"],
        runs: &["pioman-fig3"],
        tests: &[
            "crates/progress/tests/engine/triggers.rs::a_timer_polls_for_a_program_that_never_calls",
            "crates/pronto/tests/rendezvous.rs::a_timer_moves_a_message_without_a_call_by_its_receiver",
        ],
        remark: "A thread of the library wakes once per period, and the kernel takes the CPU from the computation.",
        ..Row::DEFAULT
    },
    Row {
        id: "P16",
        place: "Fig. 2",
        text: "A spare kernel thread of low priority is woken before a call that may block, and takes the CPU over if it does.",
        state: State::Done,
        code: &["crates/progress/src/spares.rs", "crates/progress/src/handover.rs"],
        runs: &["pioman-table2"],
        tests: &[
            "crates/progress/tests/engine/blocking.rs::a_spare_serves_while_the_engine_thread_is_blocked_and_returns_the_duty",
            "crates/progress/src/loom_handover.rs::loom_the_role_is_taken_over_and_returned",
        ],
        remark: "A timer wakes the spare 100 us after the call began, so nobody serves meanwhile. A spare that was woken before would \
                 run immediately on an idle CPU (decision 0013).",
        ..Row::DEFAULT
    },
    Row {
        id: "P17",
        place: "§3.2",
        text: "A call that does not block continues immediately, and the spare sleeps on.",
        state: State::Done,
        code: &["crates/progress/src/spares.rs"],
        runs: &["pioman-table2"],
        tests: &["crates/progress/tests/engine/blocking.rs::a_call_that_does_not_block_wakes_no_spare"],
        remark: "The spare is not even woken: the call sets a timer and cancels it.",
        ..Row::DEFAULT
    },
    Row {
        id: "P18",
        place: "§3.2",
        text: "The interrupt wakes the blocked thread, which continues immediately.",
        state: State::Done,
        code: &["crates/progress/src/sleep_set.rs", "crates/node/src/threads/boost.rs"],
        tests: &["crates/progress/tests/engine/wakes.rs::an_event_of_any_source_wakes_a_sleeping_engine"],
        remark: "The kernel wakes the thread; with a boost (X7) it also gets a CPU immediately.",
        ..Row::DEFAULT
    },
    Row {
        id: "P19",
        place: "§3.2",
        text: "The operating system is not changed.",
        state: State::Done,
        code: &["crates/progress/src"],
        tests: &["crates/progress/tests/engine/blocking.rs"],
        remark: "All of it is in user space; the kernel module for boosts is optional.",
        ..Row::DEFAULT
    },
    Row {
        id: "P20",
        place: "§3.3",
        text: "Types of events name what triggers their polls: a context switch, a period, an idle CPU.",
        state: State::Done,
        code: &["crates/progress/src/source.rs"],
        tests: &[
            "crates/progress/tests/engine/triggers.rs::without_an_engine_only_threads_that_wait_or_yield_poll",
        ],
        remark: "The triggers are `Idle`, `Timer`, `Wait` and `Yield`; none is a context switch (P10).",
        ..Row::DEFAULT
    },
    Row {
        id: "P21",
        place: "§3.3",
        text: "Polls run in a restricted context, as interrupt handlers do.",
        state: State::Done,
        code: &["crates/progress/src/poller.rs", "crates/progress/src/spares.rs"],
        tests: &[
            "crates/progress/tests/engine/faults.rs::a_source_may_register_and_remove_from_within_its_poll",
            "crates/progress/tests/engine/blocking.rs::a_call_outside_of_a_tasklet_is_made_directly",
        ],
        remark: "A poll may not block, as it runs under the lock around all sources; no spare takes over for one.",
        ..Row::DEFAULT
    },
    Row {
        id: "P22",
        place: "§3.3",
        text: "Tasklets run soon, one of a type at a time, and on a chosen CPU.",
        state: State::Done,
        code: &["crates/progress/src/tasklet.rs"],
        tests: &[
            "crates/progress/tests/engine/tasklets.rs::tasklets_of_one_kind_exclude_each_other_and_run_as_often_as_scheduled",
            "crates/progress/tests/engine/tasklets.rs::a_tasklet_runs_on_the_cpu_of_the_thread_that_scheduled_it",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P23",
        place: "§3.4",
        text: "The number of running threads and of CPUs decides between polling and interrupts.",
        state: State::Done,
        code: &["crates/node/src/waits/contention.rs", "crates/sched-policy/src/policy/spin.rs"],
        runs: &["adaptive", "wait-sim"],
        tests: &[
            "crates/node/src/waits/contention.rs::one_preempted_poll_makes_all_threads_sleep_until_a_trial",
            "crates/node/src/waits/contention.rs::more_nodes_than_cpus_are_too_many",
        ],
        remark: "A node sees threads of other programs only by what they cost: preempted polls and waits for a CPU.",
        ..Row::DEFAULT
    },
    Row {
        id: "P24",
        place: "§3.4",
        text: "The upper layer knows best when a request will end, and its preference counts.",
        state: State::Done,
        code: &["rpc/src/peer.rs", "comm-core/src/wait/wait_override.rs"],
        runs: &["adaptive"],
        tests: &["crates/sched-sim/tests/wait_history.rs::a_caller_that_expects_a_late_reply_does_not_poll"],
        statements: &[Statement {
            id: "P24",
            text: "Adaptive waits use little more CPU than the better policy",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P25",
        place: "§3.4",
        text: "History and priorities of requests could decide, too.",
        state: State::Done,
        code: &["comm-core/src/wait/history.rs", "crates/progress/src/source.rs"],
        runs: &["wait-sim"],
        tests: &[
            "crates/sched-sim/tests/wait_history.rs::late_calls_cost_the_service_as_much_as_sleeping",
            "crates/progress/tests/engine/triggers.rs::a_source_of_high_priority_is_polled_first_and_in_every_round",
        ],
        remark: "Sources have priorities, requests have not.",
        ..Row::DEFAULT
    },
    Row {
        id: "P26",
        place: "§3.4",
        text: "A polling watchdog combines both methods, but needs support of the kernel.",
        state: State::Partly,
        code: &["crates/progress/src/busy_poll.rs", "crates/fabric-tcp/src/tuning.rs"],
        tests: &[
            "crates/progress/src/busy_poll.rs::parameters_are_kept_or_refused",
            "crates/pronto/tests/calls.rs::the_status_reports_the_result_of_requested_busy_polling",
        ],
        remark: "The kernel's busy polling can be requested; its effect is not measured, for lack of two hosts whose network devices \
                 have NAPI.",
        ..Row::DEFAULT
    },
    Row {
        id: "P27",
        place: "Table 1",
        text: "The benchmark: a receiver that posts, computes for 50 ms and waits, and a sender that is timed.",
        state: State::Done,
        code: &["bench/src/rendezvous/receiver.rs", "bench/peers/c/overlap.c"],
        runs: &["pioman-fig3"],
        tests: &["bench/tests/contract.rs::a_send_into_a_posted_buffer_is_measured_during_a_computation"],
        ..Row::DEFAULT
    },
    Row {
        id: "P28",
        place: "Fig. 3",
        text: "There are three behaviours: no progress, progress in the grain of a timer, and full overlap.",
        state: State::Done,
        code: &["bench/src/experiments/pioman_fig3", "crates/progress/src/engine_threads.rs"],
        runs: &["pioman-fig3"],
        remark: "P8 and P29, P32, and P33 judge one each.",
        ..Row::DEFAULT
    },
    Row {
        id: "P29",
        place: "§4",
        text: "Open MPI does not progress a rendezvous; MPICH/MX does, but its notification is not overlapped.",
        state: State::Done,
        code: &["bench/src/rendezvous/mpi.rs", "bench/peers/c/overlap.c"],
        runs: &["pioman-fig3"],
        remark: "Debian's Open MPI and MPICH at their defaults. MPICH has no progress thread here, unlike the paper's on MX, so its \
                 handshake waits, too.",
        statements: &[
            Statement {
                id: "P29a",
                text: "Open MPI: senders wait until the receiver has computed",
                published: Published::Text("all"),
            },
            Statement {
                id: "P29b",
                text: "MPICH: senders wait until the receiver has computed",
                published: Published::Text("all"),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P30",
        place: "§4",
        text: "InfiniBand and TCP behave alike.",
        state: State::Done,
        code: &["bench/src/experiments/pioman_fig3", "bench/src/rdma/over.rs"],
        runs: &["pioman-fig3"],
        tests: &["daemon/tests/lab_rendezvous.rs::every_length_is_read_by_its_receiver"],
        remark: "Verbs are soft-RoCE in the lab (`--provider verbs`), where emulated CPUs do the device's work: only the order of \
                 transfer and computation is judged there, and the receiver's wait.",
        statements: &[
            Statement {
                id: "P30.tcp",
                text: "Over TCP, senders wait without an engine; with one on another CPU, overlap is at least",
                published: Published::Text("similar to MX"),
            },
            Statement {
                id: "P30.verbs",
                text: "Over verbs, senders wait without an engine; with one on another CPU, overlap is at least",
                published: Published::Text("similar to MX"),
            },
        ],
    },
    Row {
        id: "P31",
        place: "§4",
        text: "Small messages take as long as the network, with every implementation.",
        state: State::Done,
        code: &["crates/progress/src/run.rs", "crates/progress/src/direct.rs"],
        runs: &["pioman-table2"],
        remark: "Calls of 32 bytes, with the engines `idle` and `timer` by those without.",
        statements: &[
            Statement {
                id: "P31.shm",
                text: "32 B over shared memory: a call with an engine, by one without",
                published: Published::Text("close to the latency"),
            },
            Statement {
                id: "P31.tcp",
                text: "32 B over TCP: a call with an engine, by one without",
                published: Published::Text("close to the latency"),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P32",
        place: "§4",
        text: "With a timer of 10 ms, a rendezvous is delayed by at most 10 ms.",
        state: State::Done,
        code: &["crates/progress/src/engine_threads.rs", "crates/node/src/config/mod.rs"],
        runs: &["pioman-fig3"],
        tests: &["crates/pronto/tests/rendezvous.rs::a_timer_moves_a_message_without_a_call_by_its_receiver"],
        remark: "The default timer has the paper's period. Its thread is scheduled by the kernel, on the CPU of the computation.",
        statements: &[Statement {
            id: "P32",
            text: "With the timer, a send takes longer than its transfer by at most, ms",
            published: Published::Number(10.0),
        }],
    },
    Row {
        id: "P33",
        place: "§4",
        text: "With a thread on another CPU, the overlap is full.",
        state: State::Done,
        code: &["crates/progress/src/engine_threads.rs", "comm-core/src/session/rendezvous"],
        runs: &["pioman-fig3"],
        tests: &["crates/pronto/tests/rendezvous.rs::a_computing_receiver_does_not_delay_the_sender"],
        statements: &[Statement {
            id: "P33",
            text: "Overlap with progress on another CPU over shared memory, at least",
            published: Published::Text("full"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P34",
        place: "Table 2",
        text: "An empty poll takes 0.038, 0.085 and 0.142 us without threads, in mono and in SMP; an empty blocking call 1.68 us.",
        state: State::Done,
        code: &["crates/progress/src/run.rs", "crates/progress/src/spares.rs"],
        runs: &["pioman-table2"],
        remark: "The 1.68 us contain the wake-up of a spare. Here an empty call wakes none, and one that blocks wakes it after 100 us.",
        statements: &[
            Statement {
                id: "P34.poll",
                text: "An empty poll without threads, ns",
                published: Published::Number(38.0),
            },
            Statement {
                id: "P34.loop",
                text: "An empty poll of the engine's own loop, ns",
                published: Published::Number(142.0),
            },
            Statement {
                id: "P34.load",
                text: "An empty poll of the engine's own loop, in loads of a cached word",
                published: Published::Nothing,
            },
            Statement {
                id: "P34.more",
                text: "Time that each further source in memory adds to a poll, ns",
                published: Published::Nothing,
            },
            Statement {
                id: "P34.blocking",
                text: "An empty call that may block, us",
                published: Published::Number(1.68),
            },
            Statement {
                id: "P34.spare",
                text: "Time from an event, as a call blocks, until a spare serves it, us",
                published: Published::Number(1.68),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P35",
        place: "§4",
        text: "A blocking call is expensive, but without it the delay would be longer by orders of magnitude.",
        state: State::Done,
        code: &["crates/progress/src/spares.rs"],
        runs: &["pioman-table2"],
        tests: &[
            "crates/progress/tests/engine/blocking.rs::a_spare_serves_while_the_engine_thread_is_blocked_and_returns_the_duty",
        ],
        remark: "The call blocks for 50 ms, the computation of Fig. 3.",
        statements: &[Statement {
            id: "P35",
            text: "An event waits longer without a spare than with one while a call blocks, times",
            published: Published::Text("several orders of magnitude"),
        }],
    },
    Row {
        id: "P36",
        place: "§5",
        text: "Future work: the manager inside other MPIs and frameworks.",
        state: State::Done,
        code: &["crates/foreign/src/ucx.rs", "crates/foreign/src/mpi.rs"],
        tests: &[
            "crates/foreign/tests/ucx.rs::active_messages_progress_while_the_program_computes",
            "crates/foreign/tests/ucx.rs::without_the_source_they_wait_for_the_program",
            "crates/foreign/tests/mpi.rs::a_rendezvous_completes_while_the_receiver_computes",
            "crates/foreign/tests/mpi.rs::without_the_source_it_waits_for_the_receivers_own_progress",
        ],
        remark: "The other way round: a UCX worker, Open MPI and MPICH are sources of a node. MPI has no descriptor to sleep on, so a timer ends the node's sleeps while requests are open.",
        ..Row::DEFAULT
    },
    Row {
        id: "P37",
        place: "§5",
        text: "Future work: polls on the CPU that suits the machine's NUMA topology.",
        state: State::Done,
        code: &["crates/topology/src", "crates/node/src/threads/placement.rs"],
        tests: &[
            "crates/topology/tests/recorded/placing.rs::threads_go_where_the_card_is",
            "crates/node/tests/lab.rs::the_serving_thread_is_near_the_card",
        ],
        remark: "Off by default. Decisions are tested on recorded machines and in the lab; the gain is not measured, as no machine \
                 here has two nodes.",
        ..Row::DEFAULT
    },
];
