//! Claims and mechanisms of one paper: Solsona, Giné, Hernández, Luque: predictive coscheduling (2001).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "coscheduling",
    letter: 'S',
    title: "Solsona, Giné, Hernández, Luque: predictive coscheduling (2001)",
    setting: "Simulated: four nodes with the counters and priorities of Linux 2.2 on the paper's network. Real: two nodes of one \
              host with a CPU each, a link of 100 Mb/s, and a coscheduler that sets nice values.",
    rows: ROWS,
    findings: &[
        "The rule by which a woken task preempts decides everything. The policies add to `goodness()`. If a wake-up \
             compares counters only, as in Linux 2.2.1, all policies take LINUX's time. If it compares goodness, as from 2.3 \
             on, the paper's order appears. Claims use the second rule; rows have both.",
        "The effects are small, and bounded by fairness: a spent counter keeps a task from running (S11), and PRED gains \
             2 to 4 %.",
        "An arriving message that preempts (S4, rows dyn-preempt) is worth more than any prediction: with three and five \
             local tasks IS takes 0.86 and 0.89 and MG 0.93 of LINUX's time, and local tasks keep their fair share.",
        "Load information in messages is worth more than the paper's scheme: if messages state how much their sender \
             communicates (rows pred-carried), IS takes 0.92 and MG 0.96 of LINUX's time, against 0.96 and 0.98 under PRED.",
        "On two real nodes with three local tasks each, IS and MG take 0.86 and 0.84 of LINUX's time under PRED, and 0.86 and 0.74 \
             with carried pressure (99 % intervals of 0.04 to 0.07). The same share of the CPU by a static weight does about as \
             much: 1.00 and 1.03, and 1.01 and 0.97, none of them resolved.",
        "Unmodified programs over Debian's Open MPI gain more (S14): with carried pressure IS takes 0.79 and MG 0.54 of LINUX's time if the \
             library yields while it polls, and 0.48 and 0.39 if it only polls.",
        "P matters to some jobs only, and where it does, P near 1 is best in all cases but one, whatever the message pattern (S28, rows of \
             cosched-pattern). The P that predicts the queues best is often near 0, and a job takes 2 to 12 % longer with it.",
        "Page faults are the input that pays (S27): a job that continues immediately when its pages are read takes 0.83 to 0.86 of PRED's time with \
             five local tasks. The cost of switches makes no difference, and to count sent data less on a slow network makes IS slower.",
        "Polling cannot gain where a message takes longer than a wake-up, as on the paper's network (S3). If messages \
             take 2 us and a wake-up 50, polling first takes 0.48 to 0.58 of the time of a fine-grained job with local tasks \
             (W3).",
    ],
};

const ROWS: &[Row] = &[
    Row {
        id: "S1",
        place: "§1",
        text: "Idle CPU time in a network of workstations can be used by migrating tasks or by scheduling jobs.",
        state: State::NotApplicable,
        remark: "Placement of jobs on nodes is not a matter of communication.",
        ..Row::DEFAULT
    },
    Row {
        id: "S2",
        place: "§1",
        text: "Gang and explicit coscheduling switch all nodes at the same time; a central master can fail.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/slotted.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-sim/src/policy/slotted.rs::a_master_does_the_same_with_a_message_per_node_and_slot",
            "crates/sched-sim/src/policy/slotted.rs::after_a_crash_held_tasks_starve_unless_nodes_lose_patience",
        ],
        remark: "Simulated (rows gang, explicit, explicit-crash).",
        ..Row::DEFAULT
    },
    Row {
        id: "S3",
        place: "§1",
        text: "Active waiting loses in time sharing, and so does implicit coscheduling: spin, then block.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/spin.rs", "crates/sched-sim/src/cluster/transfer.rs"],
        runs: &["wait-sim"],
        tests: &[
            "crates/sched-sim/src/paper/coscheduling.rs::spinning_with_local_tasks_loses_and_a_crashed_master_stops_nothing",
        ],
        remark: "Simulated. Where messages arrive sooner than a wake-up takes, spin-then-block gains instead (W3).",
        statements: &[
            Statement {
                id: "S3a",
                text: "With local tasks on the paper's network, a job that spins takes longer than one that sleeps",
                published: Published::Text("longer"),
            },
            Statement {
                id: "S3b",
                text: "With local tasks on the paper's network, a job that spins, then blocks takes longer than one that sleeps",
                published: Published::Text("longer"),
            },
        ],
    },
    Row {
        id: "S4",
        place: "§1",
        text: "Dynamic coscheduling raises the receiver of a message immediately, by preemption too, and guards local tasks \
             against starvation.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/boosted.rs", "crates/sched-policy/src/policy/boost.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-sim/src/paper/coscheduling.rs::arriving_messages_preempt_and_local_tasks_keep_their_share",
        ],
        remark: "Simulated (rows dyn-preempt). The guard is the budget of our boost; the paper does not describe its own.",
        statements: &[
            Statement {
                id: "S4a",
                text: "Jobs take less time than under LINUX if arriving messages preempt",
                published: Published::Text("good behaviour"),
            },
            Statement {
                id: "S4b",
                text: "Smallest share of a fair share that local tasks get if arriving messages preempt",
                published: Published::Text("no starvation"),
            },
        ],
    },
    Row {
        id: "S5",
        place: "§1",
        text: "Sends and receives together predict better than receives alone.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/coschedule.rs", "crates/sched-sim/src/policy/coscheduled.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/tests/predictor.rs::pred_sees_at_least_as_much_as_dyn_and_linux_nothing",
        ],
        remark: "Simulated.",
        statements: &[Statement {
            id: "S5",
            text: "The best P of PRED takes less time than the best P of DYN",
            published: Published::Text("PRED below DYN"),
        }],
    },
    Row {
        id: "S6",
        place: "§2, Alg. 1",
        text: "The scheduler of Linux 2.2: the task with the most goodness runs, for at most 210 ms.",
        state: State::Done,
        code: &["crates/sched-sim/src/scheduler/linux2.rs"],
        tests: &[
            "crates/sched-sim/src/scheduler/linux2/tests.rs::a_slice_is_210_ms_under_2_2_and_60_under_2_4",
            "crates/sched-sim/src/scheduler/linux2/tests.rs::equals_share_equally_and_nice_counts",
        ],
        remark: "Simulated. The paper does not say how a woken task preempts: both rules of its time are there.",
        ..Row::DEFAULT
    },
    Row {
        id: "S7",
        place: "§3, (1) and (2)",
        text: "A task's frequency is its past frequency weighted by P, and the packets in its queues weighted by 1 - P.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/frequency.rs"],
        tests: &[
            "crates/sched-policy/src/policy/frequency.rs::the_first_four_are_averaged_and_the_formula_follows",
            "crates/sched-policy/tests/predictor.rs::the_formula_is_exact_but_for_rounding",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "S8",
        place: "§3",
        text: "The first four values of the frequency are means of the values read so far.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/frequency.rs"],
        tests: &[
            "crates/sched-policy/src/policy/frequency.rs::the_first_four_are_averaged_and_the_formula_follows",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "S9",
        place: "§4.1",
        text: "P is varied from near 0 to near 1.",
        state: State::Done,
        code: &["bench/src/experiments/cosched_sim/models.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/src/policy/frequency.rs::p_of_zero_sees_the_present_only_and_p_of_one_the_past_only",
        ],
        remark: "From 0.01 to 0.99; the paper does not say how near.",
        ..Row::DEFAULT
    },
    Row {
        id: "S10",
        place: "Alg. 2",
        text: "The frequency is added to the weight in goodness().",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/coschedule.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/src/policy/coschedule.rs::as_printed_spent_tasks_pass_those_with_time_left",
        ],
        remark: "As printed, the algorithm contradicts the text: spent tasks pass those with time left. Column reading has \
             both.",
        ..Row::DEFAULT
    },
    Row {
        id: "S11",
        place: "§3",
        text: "Local tasks do not starve, because a task whose counter is spent cannot run.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/coschedule.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/src/policy/coschedule.rs::a_spent_counter_keeps_a_task_from_running_however_much_it_communicates",
            "crates/sched-sim/src/paper/coscheduling.rs::local_tasks_keep_their_share_unless_the_algorithm_is_run_as_printed",
        ],
        remark: "Simulated.",
        statements: &[Statement {
            id: "S11",
            text: "Smallest share of a fair share that local tasks get under PRED",
            published: Published::Text("no starvation"),
        }],
    },
    Row {
        id: "S12",
        place: "§3, Alg. 3, Fig. 1",
        text: "The frequency is read from all sockets of a task, in packets of 4096 bytes.",
        state: State::Done,
        code: &["crates/sched-policy/src/policy/occupancy.rs", "crates/coschedule/src/sensor/mod.rs"],
        runs: &["cosched-sim", "cosched-cost"],
        tests: &[
            "crates/sched-policy/src/policy/occupancy.rs::packets_are_rounded_down",
            "crates/sched-policy/src/policy/occupancy.rs::control_messages_count_in_our_measure_only",
            "crates/coschedule/src/sensor/mod.rs::the_queues_of_another_process_follow_its_sockets",
        ],
        remark: "By sock_diag from all TCP, UDP and Unix sockets of unmodified processes. A queue with data counts as one packet more: \
             small messages do not count in the paper's measure (column measure of cosched-sim).",
        ..Row::DEFAULT
    },
    Row {
        id: "S13",
        place: "§2",
        text: "The mechanism belongs in the kernel: a daemon or a system call would cost too much.",
        state: State::Done,
        code: &[
            "crates/coschedule/src/coscheduler.rs",
            "kernel/scx/pronto_scx.bpf.c",
            "kernel/scx/predictor.h",
        ],
        runs: &["cosched-cost", "cosched-forms", "cosched-lab"],
        tests: &[
            "bench/src/experiments/cosched_cost.rs::the_statements_can_fail",
            "bench/src/experiments/cosched_forms.rs::the_statements_can_fail",
            "daemon/tests/lab_scx.rs::the_weight_of_a_program_follows_its_queues_in_the_kernel",
        ],
        remark: "The same policy as a daemon, as a daemon whose queues a BPF program reads, and in a BPF scheduler (kernel/scx). The kernel module \
             does not sample: it would do what the BPF scheduler does, and only change nice values.",
        statements: &[
            Statement {
                id: "S13",
                text: "A daemon that reads the queues of 1,000 sockets every 100 ms takes too much of a CPU",
                published: Published::Text("too much"),
            },
            Statement {
                id: "S13-ours",
                text: "Sockets of a group whose queues a daemon reads every 10 ms with 1 % of a CPU",
                published: Published::Nothing,
            },
            Statement {
                id: "S13-bpf",
                text: "Sockets of a process whose queues a daemon reads every 10 ms with 1 % of a CPU, by a BPF program",
                published: Published::Nothing,
            },
            Statement {
                id: "S13-lab",
                text: "Jobs gain more from carried pressure if a scheduler in the kernel has the weights than from the daemon's nice values",
                published: Published::Nothing,
            },
            Statement {
                id: "S13-lab-kernel",
                text: "Jobs are faster under PRED in a BPF scheduler than under PRED of a daemon that gives the same weights",
                published: Published::Nothing,
            },
            Statement {
                id: "S13-cost",
                text: "A period costs more by a daemon than in a BPF scheduler",
                published: Published::Text("too much"),
            },
            Statement {
                id: "S13-late",
                text: "Decisions of a daemon are later than those in a BPF scheduler while other processes compute",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "S14",
        place: "§2",
        text: "In the kernel it works for any message passing environment, such as PVM and MPI, without changes.",
        state: State::Partly,
        code: &["crates/coschedule/src/group.rs", "daemon/src/coscheduling.rs", "bench/src/cosched/mpi.rs"],
        runs: &["cosched-host"],
        tests: &[
            "daemon/tests/coschedule.rs::a_daemon_raises_a_process_because_its_correspondent_has_data_and_restores_it",
            "daemon/tests/coschedule.rs::a_command_is_coscheduled_and_its_exit_code_kept",
        ],
        remark: "Unmodified processes are coscheduled from outside of the kernel, programs over Debian's Open MPI among them.",
        statements: &[Statement {
            id: "S14-host",
            text: "IS and MG over an unmodified Open MPI with 3 local tasks on two nodes of this host are faster under DYN, PRED and carried than under LINUX",
            published: Published::Nothing,
        }],
    },
    Row {
        id: "S15",
        place: "§4",
        text: "Four Pentium II of 350 MHz on Ethernet with 100 Mb/s and 0.1 ms.",
        state: State::Done,
        code: &["crates/sched-sim/src/link.rs", "crates/sched-sim/src/workload/parallel/mod.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-sim/src/link.rs::a_full_frame_takes_a_hundredth_of_a_second_for_125_kilobytes",
        ],
        remark: "Simulated.",
        ..Row::DEFAULT
    },
    Row {
        id: "S16",
        place: "§4",
        text: "LINUX, DYN and PRED are compared; DYN is PRED without the packets to be sent.",
        state: State::Done,
        code: &[
            "crates/sched-policy/src/policy/coschedule.rs",
            "bench/src/experiments/cosched_sim/models.rs",
        ],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/src/policy/coschedule.rs::dyn_counts_received_data_and_pred_also_data_to_be_sent",
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "S17",
        place: "§4",
        text: "The local load is a program that computes for ever, or a given time where it is timed.",
        state: State::Done,
        code: &[
            "crates/sched-sim/src/workload/compute.rs",
            "crates/parallel-jobs/src/calcula.rs",
            "bench/src/cosched/local.rs",
        ],
        runs: &["cosched-sim", "cosched-host"],
        tests: &["crates/sched-sim/src/paper/coscheduling.rs::the_cpu_time_of_local_tasks_is_measured"],
        ..Row::DEFAULT
    },
    Row {
        id: "S18",
        place: "Fig. 2",
        text: "The NAS benchmarks IS and MG run with a growing number of local tasks.",
        state: State::Done,
        code: &[
            "crates/sched-sim/src/workload/parallel/is.rs",
            "crates/sched-sim/src/workload/parallel/mg.rs",
            "crates/parallel-jobs",
            "bench/src/cosched",
        ],
        runs: &["cosched-sim", "cosched-host"],
        tests: &[
            "crates/sched-sim/src/workload/parallel/is.rs::alone_it_takes_its_computing_and_the_transfer_of_its_keys",
            "crates/sched-sim/src/workload/parallel/mg.rs::alone_it_computes_most_of_the_time",
        ],
        remark: "Simulated with their messages as in the public sources, and real: written from the specification, verified against \
             the published values, over Pronto, on two nodes instead of four.",
        ..Row::DEFAULT
    },
    Row {
        id: "S19",
        place: "§4.1, Fig. 2",
        text: "DYN and PRED beat LINUX as load grows, except DYN with P near 1.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/coscheduled.rs"],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &[
            "crates/sched-sim/src/paper/coscheduling.rs::with_five_local_tasks_pred_beats_dyn_and_dyn_beats_linux",
        ],
        remark: "Simulated, and real on two nodes of one host and on four of the lab. A cell counts if the difference exceeds what seeds or rounds \
             differ by. In the lab the jobs have class S: their queues hold a message at most, so DYN and PRED change no nice value, and their runs \
             are void; with carried pressure IS takes 0.93 \u{b1} 0.06 of LINUX's time (ten rounds; LINUX against itself 1.07 \u{b1} 0.14). With class W, IS takes 0.97 \
             under PRED and 0.90 with carried pressure (three rounds, not resolved).",
        statements: &[
            Statement {
                id: "S19",
                text: "With three local tasks or more, DYN and PRED take less time than LINUX, except DYN with P near 1",
                published: Published::Text("below LINUX"),
            },
            Statement {
                id: "S19-host",
                text: "With three local tasks or more on each of two real nodes, DYN and PRED take less time than LINUX",
                published: Published::Text("below LINUX"),
            },
            Statement {
                id: "S19-share",
                text: "On these, DYN, PRED and carried pressure take less time than with the same share of the CPU by a static weight",
                published: Published::Nothing,
            },
            Statement {
                id: "S19-lab",
                text: "With three local tasks or more on each of four nodes of the lab, DYN and PRED take less time than LINUX",
                published: Published::Text("below LINUX"),
            },
            Statement {
                id: "S19-lab-share",
                text: "There, DYN, PRED and carried pressure take less time than with the same share of the CPU by a static weight",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "S20",
        place: "§4.1, Fig. 2",
        text: "PRED with P near 1 is best for both benchmarks.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/coscheduled.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-sim/src/paper/coscheduling.rs::with_five_local_tasks_pred_beats_dyn_and_dyn_beats_linux",
        ],
        remark: "Simulated, as S19.",
        statements: &[Statement {
            id: "S20",
            text: "PRED with P near 1 is fastest",
            published: Published::Text("PRED, P near 1"),
        }],
    },
    Row {
        id: "S21",
        place: "§4.1, Fig. 3",
        text: "IS of class A and MG of class T with 600 iterations run at the same time.",
        state: State::Partly,
        code: &["crates/sched-sim/src/workload/parallel/mg.rs", "bench/src/experiments/cosched_host/mod.rs"],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &[
            "crates/sched-sim/src/workload/parallel/mg.rs::class_t_communicates_less_than_class_a_and_class_s_more_often",
        ],
        remark: "No published suite has a class T. In the simulation ours has the exchanges of 32^3 points, and between them the computing of \
             class A; class S with 600 iterations is a second row. Real jobs are both of one class (`--run together`), and the longer one goes on \
             alone.",
        ..Row::DEFAULT
    },
    Row {
        id: "S22",
        place: "§4.1, Fig. 3",
        text: "IS gains from PRED, and MG of class T is about the same under all, as it communicates less than class A.",
        state: State::Done,
        code: &[
            "crates/sched-sim/src/workload/parallel/mg.rs",
            "bench/src/experiments/cosched_host/claims.rs",
        ],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &[
            "crates/sched-sim/src/workload/parallel/mg.rs::class_t_communicates_less_than_class_a_and_class_s_more_often",
            "bench/src/experiments/cosched_host/claims.rs::the_statement_about_jobs_that_run_together_can_fail",
        ],
        remark: "Judged with our class T, which communicates less than class A. Class S communicates more often than class A, \
             and is in the detail.",
        statements: &[
            Statement {
                id: "S22",
                text: "Run together, IS gains from PRED and MG of class T does not",
                published: Published::Text("IS gains, MG the same"),
            },
            Statement {
                id: "S22-host",
                text: "IS that runs together with MG on two real nodes is faster under PRED than under LINUX",
                published: Published::Text("IS gains"),
            },
            Statement {
                id: "S22-lab",
                text: "IS that runs together with MG on four nodes of the lab is faster under PRED than under LINUX",
                published: Published::Text("IS gains"),
            },
        ],
    },
    Row {
        id: "S23",
        place: "§4.1",
        text: "Condition: all programs fit into main memory, as page faults would spoil the results.",
        state: State::Done,
        code: &["bench/src/cosched/rank.rs", "bench/src/experiments/cosched_host/mod.rs"],
        runs: &["cosched-host"],
        tests: &["bench/src/experiments/cosched_host/column.rs::void_runs_are_left_out"],
        remark: "A real run in which a rank read pages from a disk is void (column void).",
        ..Row::DEFAULT
    },
    Row {
        id: "S24",
        place: "§4.2, Fig. 4",
        text: "Local tasks take about the same time under all three policies.",
        state: State::Done,
        code: &["crates/sched-sim/src/policy/coscheduled.rs"],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &["crates/sched-sim/src/paper/coscheduling.rs::the_cpu_time_of_local_tasks_is_measured"],
        remark: "Simulated with three local tasks on each node; the paper does not give the number.",
        statements: &[
            Statement {
                id: "S24",
                text: "Local tasks take about the same time as under LINUX",
                published: Published::Text("very similar"),
            },
            Statement {
                id: "S24-host",
                text: "Smallest work of local tasks per CPU time on two real nodes, of that under LINUX",
                published: Published::Text("about the same"),
            },
            Statement {
                id: "S24-lab",
                text: "Smallest work of local tasks per CPU time on four nodes of the lab, of that under LINUX",
                published: Published::Text("about the same"),
            },
        ],
    },
    Row {
        id: "S25",
        place: "§4.2",
        text: "A master on one node, and on each other node a slave that only receives and one that answers.",
        state: State::Done,
        code: &["crates/sched-sim/src/workload/master_slave.rs", "crates/parallel-jobs/src/master_slave.rs"],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &[
            "crates/sched-sim/src/workload/master_slave.rs::it_is_mapped_as_in_the_paper_and_an_iteration_is_a_round_trip",
            "bench/src/cosched/rank.rs::a_master_has_a_node_of_its_own_and_two_slaves_are_on_each_other_node",
            "crates/parallel-jobs/tests/over_pronto.rs::slaves_of_both_kinds_take_part",
        ],
        remark: "Simulated, and a real program. Messages of 4096 bytes, 1 ms of computing and the numbers of iterations are ours.",
        ..Row::DEFAULT
    },
    Row {
        id: "S26",
        place: "§4.2, Fig. 4",
        text: "Master and slaves: P near 0 is best, and P matters more to DYN.",
        state: State::Done,
        code: &[
            "crates/sched-sim/src/policy/coscheduled.rs",
            "crates/sched-sim/src/workload/master_slave.rs",
        ],
        runs: &["cosched-sim", "cosched-host", "cosched-lab"],
        tests: &["bench/src/experiments/cosched_host/claims.rs::the_statements_about_p_can_fail"],
        remark: "Simulated, and real with P of 0.01, 0.9 and 0.99. The real runs are void: a queue with one message of 4096 bytes makes a \
             frequency of 2, and the first step of a nice value needs 5.",
        statements: &[
            Statement {
                id: "S26a",
                text: "Master and slaves are fastest with P near 0",
                published: Published::Text("P near 0"),
            },
            Statement {
                id: "S26b",
                text: "P matters more to DYN than to PRED",
                published: Published::Text("DYN above PRED"),
            },
            Statement {
                id: "S26a-host",
                text: "A real master with slaves on two nodes takes less time under PRED with P near 0 than with other P",
                published: Published::Text("P near 0"),
            },
            Statement {
                id: "S26b-host",
                text: "There, P near 1 costs more under DYN than under PRED",
                published: Published::Text("DYN above PRED"),
            },
            Statement {
                id: "S26a-lab",
                text: "A real master with slaves on four nodes of the lab takes less time under PRED with P near 0 than with other P",
                published: Published::Text("P near 0"),
            },
            Statement {
                id: "S26b-lab",
                text: "There, P near 1 costs more under DYN than under PRED",
                published: Published::Text("DYN above PRED"),
            },
        ],
    },
    Row {
        id: "S27",
        place: "§5",
        text: "Future work: take network latency, page faults and switch costs into account.",
        state: State::Done,
        code: &[
            "crates/sched-policy/src/policy/costs.rs",
            "crates/sched-sim/src/policy/costed.rs",
            "crates/sched-sim/src/cluster/dispatch.rs",
        ],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/src/policy/costs.rs::pages_count_as_packets_for_a_task_that_communicates",
            "crates/sched-sim/src/cluster/mod.rs::a_task_with_page_faults_sleeps_while_the_only_disk_of_its_node_reads",
        ],
        remark: "Simulated (rows pred-plus; apps with faults, switches and far). The paper gives no rule; that of PRED+ is ours. Only \
             the tasks of jobs have page faults, at equal intervals of their CPU time.",
        statements: &[
            Statement {
                id: "S27a",
                text: "PRED+ takes no longer than PRED where costs are those of the paper, within 1 %",
                published: Published::Nothing,
            },
            Statement {
                id: "S27b",
                text: "PRED+ takes less time than PRED where page faults, switches or messages take long",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "S28",
        place: "§5",
        text: "Future work: analyse P against the pattern of messages.",
        state: State::Done,
        code: &[
            "crates/sched-sim/src/policy/observed.rs",
            "bench/src/experiments/cosched_pattern/workloads.rs",
            "bench/src/experiments/cosched_pattern/claims.rs",
        ],
        runs: &["cosched-pattern"],
        tests: &[
            "crates/sched-sim/src/policy/observed.rs::queues_and_answers_are_counted_and_nothing_changes",
            "bench/src/experiments/cosched_pattern/claims/tests.rs::the_opposite_refutes_every_claim",
        ],
        remark: "Simulated: PRED with five values of P on 14 jobs. The grids are ours.",
        statements: &[
            Statement {
                id: "S28a",
                text: "The time of a job depends on P by more than chance shows, and by more than 1 % of LINUX's time",
                published: Published::Text("may vary depending on P"),
            },
            Statement {
                id: "S28b",
                text: "The more of its time a job computes, the less P matters to it",
                published: Published::Nothing,
            },
            Statement {
                id: "S28c",
                text: "With the P that predicts its queues best, a job takes as long as with its best P, within 1 %",
                published: Published::Text("a closer approximation to the message pattern"),
            },
            Statement {
                id: "S28d",
                text: "The more packets the queues of a job hold, the more P near 1 gains over P near 0",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "S29",
        place: "§5",
        text: "Future work: metrics at run time by which parameters are tuned while tasks run.",
        state: State::Partly,
        code: &["crates/sched-policy/src/policy/auto.rs", "crates/sched-sim/src/policy/coscheduled.rs"],
        runs: &["cosched-sim"],
        tests: &[
            "crates/sched-policy/tests/predictor.rs::p_comes_near_its_best_from_anywhere_also_with_noise",
            "crates/sched-sim/src/policy/coscheduled.rs::p_moves_by_itself_where_it_is_allowed_to",
        ],
        remark: "P follows a task's own waits, in the simulation only (rows pred-auto).",
        ..Row::DEFAULT
    },
];
