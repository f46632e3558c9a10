//! Claims and mechanisms of one paper: Saito, Taura, Chikayama: Expedite (2004).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "expedite",
    letter: 'X',
    title: "Saito, Taura, Chikayama: Expedite (2004)",
    setting: "",
    rows: ROWS,
    findings: &[],
};

const ROWS: &[Row] = &[
    Row {
        id: "X5",
        place: "§1.2",
        text: "A thread that wakes now and then does not notice a few hundred microseconds.",
        state: State::Done,
        runs: &["expedite-fig4"],
        statements: &[Statement {
            id: "X5",
            text: "A thread that wakes now and then wakes later by less than a few hundred microseconds",
            published: Published::Text("a few hundred us"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X7",
        place: "§3.3",
        text: "The thread that reads from the flagged socket is boosted.",
        state: State::Done,
        runs: &["expedite-fig2"],
        statements: &[Statement {
            id: "X7",
            text: "Share of the pings whose reader is boosted, although another thread set the flag",
            published: Published::Number(1.0),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X9",
        place: "§3.3",
        text: "A boost lasts until the thread is dispatched.",
        state: State::Done,
        runs: &["expedite-fig2"],
        statements: &[Statement {
            id: "X9",
            text: "A boost lasts until the thread is dispatched",
            published: Published::Text("until dispatched"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X13",
        place: "§3.4",
        text: "A thread of low priority passes those of high priority, but briefly.",
        state: State::Done,
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
        runs: &["expedite-fig5"],
        statements: &[Statement {
            id: "X14",
            text: "A handler that computes most gains nothing from its boosts",
            published: Published::Text("nothing"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X16",
        place: "§2",
        text: "A boost for every thread that unblocks leaves the problem.",
        state: State::Done,
        runs: &["expedite-sim"],
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
        runs: &["expedite-fig5"],
        statements: &[Statement {
            id: "X18",
            text: "A reservation helps only as far as it was estimated in advance",
            published: Published::Text("an estimate"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X22",
        place: "§4.1",
        text: "500 B every 50 ms, with a process that computes and two that mostly sleep.",
        state: State::Done,
        runs: &["expedite-fig1"],
        statements: &[Statement {
            id: "X22",
            text: "The load is the paper's: interval and background",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X23",
        place: "Fig. 1a",
        text: "A background that only computes delays no ping.",
        state: State::Done,
        runs: &["expedite-sim", "expedite-fig1", "expedite-fig2"],
        statements: &[Statement {
            id: "X23",
            text: "Share of pings that a compute-only process delays by a millisecond",
            published: Published::Number(0.0),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X24",
        place: "Fig. 1b",
        text: "Processes that mostly sleep delay pings by milliseconds, up to 5.",
        state: State::Done,
        runs: &["expedite-sim", "expedite-fig1", "expedite-fig2"],
        statements: &[Statement {
            id: "X24",
            text: "Processes that mostly sleep delay pings by milliseconds: longest delay, ms",
            published: Published::Number(5.0),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X25",
        place: "Fig. 2",
        text: "With Expedite no ping is late.",
        state: State::Done,
        runs: &["expedite-sim", "expedite-fig2", "expedite-late"],
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
        ..Row::DEFAULT
    },
    Row {
        id: "X26",
        place: "Fig. 3",
        text: "Nine flagged pairs of ten stop suffering.",
        state: State::Done,
        runs: &["expedite-sim", "expedite-fig3"],
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
        runs: &["expedite-sim", "expedite-fig4"],
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
        runs: &["expedite-sim", "expedite-fig5"],
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
        ..Row::DEFAULT
    },
    Row {
        id: "X32",
        place: "Fig. 7",
        text: "In a scatter, a loaded rank delays the ranks behind it only.",
        state: State::Done,
        runs: &["expedite-sim"],
        statements: &[Statement {
            id: "X32",
            text: "The loaded rank delays the ranks behind it, and no others",
            published: Published::Text("behind rank 4 only"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "X33",
        place: "§5",
        text: "A handler thread removes over 5 of over 6 ms, Expedite almost all of the rest.",
        state: State::Done,
        runs: &["expedite-sim"],
        statements: &[
            Statement { id: "X33", text: "All four of X33a to X33d", published: Published::Nothing },
            Statement {
                id: "X33a",
                text: "Polling: ranks 5 to 7 wait, ms",
                published: Published::Number(6.0),
            },
            Statement {
                id: "X33b",
                text: "A blocking handler thread removes of that, ms",
                published: Published::Number(5.0),
            },
            Statement { id: "X33c", text: "What remains then, us", published: Published::Number(500.0) },
            Statement {
                id: "X33d",
                text: "With Expedite, time as a multiple of that without background",
                published: Published::Text("almost 1"),
            },
        ],
        ..Row::DEFAULT
    },
];
