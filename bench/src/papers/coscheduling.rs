//! Claims and mechanisms of one paper: Solsona, Giné, Hernández, Luque: predictive coscheduling (2001).

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "coscheduling",
    letter: 'S',
    title: "Solsona, Giné, Hernández, Luque: predictive coscheduling (2001)",
    setting: "",
    rows: ROWS,
};

const ROWS: &[Row] = &[
    Row {
        id: "S3",
        place: "§1",
        text: "Active waiting loses in time sharing, spin-then-block too.",
        state: State::Done,
        runs: &["wait-sim"],
        statements: &[Statement {
            id: "S3",
            text: "With local tasks, spinning and spin-then-block take longer than sleeping",
            published: Published::Text("longer"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S5",
        place: "§1",
        text: "Sends and receives together predict better than receives alone.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S5",
            text: "The best P of PRED takes less time than the best P of DYN",
            published: Published::Text("PRED below DYN"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S11",
        place: "§3",
        text: "Local tasks do not starve.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S11",
            text: "Smallest share of a fair share that local tasks get under PRED",
            published: Published::Text("no starvation"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S19",
        place: "Fig. 2",
        text: "DYN and PRED beat LINUX as load grows, except DYN with P near 1.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S19",
            text: "With three local tasks or more, DYN and PRED take less time than LINUX, except DYN with P near 1",
            published: Published::Text("below LINUX"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S20",
        place: "Fig. 2",
        text: "PRED with P near 1 is best for both benchmarks.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S20",
            text: "PRED with P near 1 is fastest",
            published: Published::Text("PRED, P near 1"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S22",
        place: "Fig. 3",
        text: "MG of class T gains little next to IS, as it communicates less.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S22",
            text: "Run together, IS gains from PRED and MG of class T does not",
            published: Published::Text("IS gains, MG the same"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S24",
        place: "Fig. 4",
        text: "Local tasks take the same time under all three policies.",
        state: State::Done,
        runs: &["cosched-sim"],
        statements: &[Statement {
            id: "S24",
            text: "Local tasks take about the same time as under LINUX",
            published: Published::Text("very similar"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "S26",
        place: "Fig. 4",
        text: "Master and slaves: P near 0 is best, and P matters more to DYN.",
        state: State::Done,
        runs: &["cosched-sim"],
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
        ],
        ..Row::DEFAULT
    },
];
