//! Claims and mechanisms of one paper: Frachtenberg and Petrini: overlap on Quadrics (2001).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "overlap",
    letter: 'Q',
    title: "Frachtenberg and Petrini: overlap on Quadrics (2001)",
    setting: "",
    rows: ROWS,
};

const ROWS: &[Row] = &[
    Row {
        id: "Q5",
        place: "Table 3",
        text: "A computation at the highest priority holds the ping-pong up until its end.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[Statement {
            id: "Q5",
            text: "The ping-pong's delay as a share of the time of a computation at nice -20",
            published: Published::Number(0.91),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q6",
        place: "Table 3",
        text: "At the lowest priority the computation is late, and the ping-pong no better.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[
            Statement {
                id: "Q6a",
                text: "Further delay of a computation at nice 19, as a share of its time",
                published: Published::Number(0.307),
            },
            Statement {
                id: "Q6b",
                text: "The ping-pong's time then, as a multiple of that at nice 0",
                published: Published::Number(0.9),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "Q7",
        place: "Table 4",
        text: "Polling delays the computation, and the ping-pong too.",
        state: State::Done,
        runs: &["overlap-tables"],
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
        place: "Table 1",
        text: "Alone, polling is a little faster.",
        state: State::Done,
        runs: &["overlap-tables"],
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
        text: "Few long messages take longer than the same bytes in many.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[
            Statement {
                id: "Q9a",
                text: "Alone, fresh memory: 100 messages of 64 MB by 6,400 of 1 MB",
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
        runs: &["overlap-tables"],
        statements: &[Statement {
            id: "Q10",
            text: "Spread of one 64 MB message by the largest of the other cases",
            published: Published::Text("above 1"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q11",
        place: "§3",
        text: "All programs start within half a second.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[Statement {
            id: "Q11",
            text: "Longest time between the starts of the programs, s",
            published: Published::Number(0.5),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q13",
        place: "§5",
        text: "Computation and communication overlap unless a thread waits busily.",
        state: State::Done,
        runs: &["overlap-tables"],
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
        ..Row::DEFAULT
    },
    Row {
        id: "Q14",
        place: "§5",
        text: "Many small operations tax a computation more than few large ones.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[Statement {
            id: "Q14",
            text: "Delay of a computation by 6,400 messages of 1 MB, as a multiple of that by 100 of 64 MB",
            published: Published::Number(13.1),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "Q15",
        place: "§5",
        text: "Priorities do not help.",
        state: State::Done,
        runs: &["overlap-tables"],
        statements: &[Statement {
            id: "Q15",
            text: "Time until both are done with the best priority, as a multiple of that at nice 0",
            published: Published::Text("about 1"),
        }],
        ..Row::DEFAULT
    },
];
