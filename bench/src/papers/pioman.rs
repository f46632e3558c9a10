//! Claims and mechanisms of one paper: Trahay, Denis, Aumage, Namyst: PIOMan (2007).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "pioman",
    letter: 'P',
    title: "Trahay, Denis, Aumage, Namyst: PIOMan (2007)",
    setting: "",
    rows: ROWS,
    findings: &[],
};

const ROWS: &[Row] = &[
    Row {
        id: "P3",
        place: "§2",
        text: "Active waiting is dear if it is repeated.",
        state: State::Done,
        runs: &["adaptive"],
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
        text: "Passive waiting costs an interrupt and a switch.",
        state: State::Done,
        runs: &["adaptive"],
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
        text: "A woken thread may be scheduled late.",
        state: State::Done,
        runs: &["adaptive"],
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
        id: "P7",
        place: "§2",
        text: "A polling thread is scheduled rarely on a loaded machine.",
        state: State::Done,
        runs: &["adaptive"],
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
        text: "Without progress in the background, a rendezvous waits for the end of the computation.",
        state: State::Done,
        runs: &["pioman-fig3"],
        statements: &[Statement {
            id: "P8",
            text: "Without an engine, senders wait until the receiver has computed",
            published: Published::Text("all"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P24",
        place: "§3.4",
        text: "The upper layer's preference decides how to wait.",
        state: State::Done,
        runs: &["adaptive"],
        statements: &[Statement {
            id: "P24",
            text: "Adaptive waits use little more CPU than the better policy",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P29",
        place: "Fig. 3",
        text: "Open MPI and MPICH do not overlap a rendezvous with computation.",
        state: State::Done,
        runs: &["pioman-fig3"],
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
        runs: &["pioman-fig3"],
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
        ..Row::DEFAULT
    },
    Row {
        id: "P31",
        place: "§4",
        text: "Small messages take as long with progress as without.",
        state: State::Done,
        runs: &["pioman-table2"],
        statements: &[
            Statement {
                id: "P31.shm",
                text: "32 B over shared memory: a call with the engine as a multiple of one without",
                published: Published::Number(1.0),
            },
            Statement {
                id: "P31.tcp",
                text: "32 B over TCP: a call with the engine as a multiple of one without",
                published: Published::Number(1.0),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "P32",
        place: "§4",
        text: "With a timer, a sender waits for at most 10 ms.",
        state: State::Done,
        runs: &["pioman-fig3"],
        statements: &[Statement {
            id: "P32",
            text: "With the timer, a send takes longer than its transfer by at most, ms",
            published: Published::Number(10.0),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "P33",
        place: "§4",
        text: "With a thread on another CPU the overlap is full.",
        state: State::Done,
        runs: &["pioman-fig3"],
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
        text: "Detecting nothing takes 0.038 to 0.142 us by polling, and 1.68 us by an interrupt.",
        state: State::Done,
        runs: &["pioman-table2"],
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
        runs: &["pioman-table2"],
        statements: &[Statement {
            id: "P35",
            text: "An event waits longer without a spare than with one while a call blocks, times",
            published: Published::Text("several orders of magnitude"),
        }],
        ..Row::DEFAULT
    },
];
