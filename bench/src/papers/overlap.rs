//! Claims and mechanisms of one paper: Frachtenberg and Petrini: overlap on Quadrics (2001).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "overlap",
    letter: 'Q',
    title: "Frachtenberg and Petrini: overlap on Quadrics (2001)",
    setting: "Both nodes are CPUs of one machine, and a CPU copies the bytes that the report's network card moves; programs are \
              scaled down.",
    rows: ROWS,
    findings: &[],
};

const ROWS: &[Row] = &[
    Row {
        id: "Q1",
        place: "Test applications",
        text: "The computation: a loop of 5e8 sines without communication, two on each of two nodes.",
        state: State::Done,
        code: &["bench/src/overlap/burn.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/burn.rs::steps_grow_with_the_requested_time"],
        remark: "0.5 s instead of 63 s, 0.1 s in a quick run; one on each CPU (Q12).",
        ..Row::DEFAULT
    },
    Row {
        id: "Q2",
        place: "Test applications",
        text: "The communication: a ping-pong with a number and a length of messages, which polls or waits for an event.",
        state: State::Done,
        code: &["bench/src/overlap/ping.rs"],
        runs: &["overlap-tables"],
        tests: &[
            "bench/tests/contract.rs::a_ping_pong_is_measured_during_a_computation_and_judges_untestable_claims",
        ],
        remark: "Messages go by reference into posted buffers; adaptive waits are a third kind. A twentieth of the messages, a \
             fiftieth in a quick run.",
        ..Row::DEFAULT
    },
    Row {
        id: "Q3",
        place: "Table 1",
        text: "Times of both programs alone.",
        state: State::Done,
        code: &["bench/src/overlap/row.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/row/tests.rs::rows_have_the_reports_numbers"],
        remark: "Columns paper_* have the report's seconds.",
        ..Row::DEFAULT
    },
    Row {
        id: "Q4",
        place: "Table 2",
        text: "Together, the ping-pong is slower by less than 1 %, and the computation hardly.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        remark: "Not transferable: a CPU copies the bytes here, where the report has a network card. One of the report's four \
             cases exceeds its own 1 %: 8.9 s instead of 8.0.",
        statements: &[Statement {
            id: "Q4",
            text: "Slowdown of the ping-pong next to a computation of the same priority",
            published: Published::Number(0.01),
        }],
    },
    Row {
        id: "Q5",
        place: "Table 3",
        text: "A computation at the highest priority holds the ping-pong up until its end, and gains nothing itself.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        remark: "The second half is not transferable, for the reason of Q4.",
        statements: &[Statement {
            id: "Q5",
            text: "The ping-pong's delay as a share of the time of a computation at nice -20",
            published: Published::Number(0.91),
        }],
    },
    Row {
        id: "Q6",
        place: "Table 3",
        text: "At the lowest priority the computation is late, and the ping-pong no better.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        remark: "Lowest is nice 19 here, 20 in the report.",
        statements: &[
            Statement {
                id: "Q6a",
                text: "Further delay of a computation at nice 19, as a share of its time",
                published: Published::Number(0.307),
            },
            Statement {
                id: "Q6b",
                text: "The ping-pong's time then, as a multiple of that at nice 0",
                published: Published::Number(0.899),
            },
        ],
    },
    Row {
        id: "Q7",
        place: "Table 4",
        text: "Polling delays the computation, and the ping-pong too.",
        state: State::Done,
        code: &["comm-core/src/session/api/wait.rs", "bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        statements: &[
            Statement {
                id: "Q7a",
                text: "Delay of the computation as a multiple of that with sleeping waits",
                published: Published::Number(17.2),
            },
            Statement {
                id: "Q7b",
                text: "Time of the ping-pong during it, as a multiple of that with sleeping waits",
                published: Published::Number(1.1),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "Q8",
        place: "Polling mechanism",
        text: "Alone, polling is a little faster.",
        state: State::Done,
        code: &["comm-core/src/session/api/wait.rs", "bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        statements: &[Statement {
            id: "Q8",
            text: "Alone, time of a polling ping-pong as a multiple of a sleeping one",
            published: Published::Text("slightly below 1"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q9",
        place: "Table 1",
        text: "Few long messages take longer than the same bytes in many, perhaps by paging.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        statements: &[
            Statement {
                id: "Q9a",
                text: "Alone, fresh memory: time of 100 messages of 64 MB as a multiple of 6,400 of 1 MB",
                published: Published::Number(1.115),
            },
            Statement {
                id: "Q9b",
                text: "With prefaulted memory this ratio is smaller",
                published: Published::Text("suspected"),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "Q10",
        place: "Table 1",
        text: "One long message varies most.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_opposite_refutes_every_claim"],
        remark: "Five runs instead of three.",
        statements: &[Statement {
            id: "Q10",
            text: "Spread of one 64 MB message as a multiple of the largest of the other cases",
            published: Published::Text("above 1"),
        }],
    },
    Row {
        id: "Q11",
        place: "Overlapping",
        text: "All programs start within half a second, and delays are absolute, not relative.",
        state: State::Done,
        code: &["bench/src/overlap/row.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/row/tests.rs::programs_that_do_not_start_together_void_a_run"],
        remark: "A condition, not a claim: all start at one time of the clock, and a later start voids the run (column \
             start_skew_s).",
        ..Row::DEFAULT
    },
    Row {
        id: "Q12",
        place: "Test applications",
        text: "Two nodes with two CPUs each, and a computation on every CPU.",
        state: State::Partly,
        code: &["bench/src/experiments/overlap_tables.rs"],
        runs: &["overlap-tables"],
        remark: "Both nodes are CPUs of one machine, each with one side of the ping-pong and one computation.",
        ..Row::DEFAULT
    },
    Row {
        id: "Q13",
        place: "Conclusions",
        text: "Computation and communication overlap unless a thread waits busily.",
        state: State::Done,
        code: &["comm-core/src/session/rendezvous", "crates/node/src/measure/calibrate.rs"],
        runs: &["overlap-tables"],
        tests: &[
            "bench/src/overlap/claims.rs::a_computation_that_loses_work_or_time_refutes_the_conclusion",
            "bench/src/overlap/claims.rs::noise_and_missing_privileges_leave_claims_open",
        ],
        remark: "Without a network card that moves the bytes it can only say that the computation loses no other time. Short \
             units repeat until the interval is clear of the bar.",
        statements: &[
            Statement {
                id: "Q13a",
                text: "Work per second of CPU time next to sleeping or adaptive waits, as a share of that alone",
                published: Published::Nothing,
            },
            Statement {
                id: "Q13b",
                text: "Share of the computation's time that no communicating thread used",
                published: Published::Nothing,
            },
        ],
    },
    Row {
        id: "Q14",
        place: "Conclusions",
        text: "Many small operations tax a computation more than few large ones.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        statements: &[Statement {
            id: "Q14",
            text: "Delay of a computation by 6,400 messages of 1 MB, as a multiple of that by 100 of 64 MB",
            published: Published::Number(13.1),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q15",
        place: "Conclusions",
        text: "Priorities do not help.",
        state: State::Done,
        code: &["bench/src/overlap/claims.rs"],
        runs: &["overlap-tables"],
        tests: &["bench/src/overlap/claims.rs::the_reports_own_tables_hold"],
        statements: &[Statement {
            id: "Q15",
            text: "Time until both are done with the best priority, as a multiple of that at nice 0",
            published: Published::Text("about 1"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q16",
        place: "Preamble",
        text: "The purpose is buffered coscheduling: communication is held, and done later next to the computation of any \
             job.",
        state: State::Partly,
        code: &["crates/sched-sim/src/policy/strobed.rs"],
        runs: &["cosched-sim"],
        tests: &["crates/sched-sim/src/policy/strobed.rs::a_round_trip_waits_for_a_strobe_on_each_way"],
        remark: "Simulated (rows bcs): messages wait for a strobe every 10 ms. Nodes do not exchange what they need, and nothing \
             real does it.",
        ..Row::DEFAULT
    },
];
