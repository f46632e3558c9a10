//! Claims and mechanisms of one paper: Kim: a communication layer for distributed operating systems.

use super::{Paper, Published, Row, State, Statement};

/// The paper.
pub(super) const PAPER: Paper = Paper {
    key: "comm-layer",
    letter: 'K',
    title: "Kim: a communication layer for distributed operating systems",
    setting: "",
    rows: ROWS,
};

const ROWS: &[Row] = &[
    Row {
        id: "K2",
        place: "§1",
        text: "The TCP/IP stack is too deep for control messages.",
        state: State::Done,
        runs: &["latency"],
        statements: &[Statement {
            id: "K2",
            text: "A control message takes longer over TCP/IP than over the native transport of the same link",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K3",
        place: "§1",
        text: "IPoIB takes tens of microseconds where native InfiniBand takes a few.",
        state: State::Done,
        runs: &["latency"],
        statements: &[Statement {
            id: "K3",
            text: "The same call by IP over the same link takes longer than by verbs",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K11",
        place: "Fig. 1",
        text: "Registering and deregistering a buffer is up to 98 % of a transfer that needs it.",
        state: State::Done,
        runs: &["comm-fig1"],
        statements: &[Statement {
            id: "K11",
            text: "Setting the buffer up takes most of a transfer",
            published: Published::Number(0.98),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K12",
        place: "§3.1",
        text: "Setting a buffer up matters more than the transfer, whatever its size.",
        state: State::Done,
        runs: &["comm-fig1"],
        statements: &[Statement {
            id: "K12",
            text: "Setting the buffer up takes more than half of the transfer at every size",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K16",
        place: "§3.1",
        text: "Most messages are small, and most bytes travel in large messages.",
        state: State::Done,
        runs: &["mix"],
        statements: &[
            Statement {
                id: "K16a",
                text: "Share of messages under 100 B",
                published: Published::Number(0.744),
            },
            Statement {
                id: "K16b",
                text: "Share of bytes in messages over 1 KiB",
                published: Published::Number(0.971),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K27",
        place: "§3.2",
        text: "While a buffer is held for long, temporary buffers take its place.",
        state: State::Done,
        runs: &["straggler"],
        statements: &[
            Statement {
                id: "K27",
                text: "Behind a held buffer the circular buffer fills, and sends take temporary buffers",
                published: Published::Text("some"),
            },
            Statement {
                id: "K27-ours",
                text: "With chunks, a held buffer blocks one chunk: no send needs a temporary buffer or is refused",
                published: Published::Nothing,
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K29",
        place: "§3.2",
        text: "A completion thread that blocked senders wait for costs up to hundreds of microseconds.",
        state: State::Done,
        runs: &["completion"],
        statements: &[Statement {
            id: "K29",
            text: "A send takes longer with a completion thread than if its sender polls",
            published: Published::Text("up to hundreds of us more"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K31",
        place: "§3.2",
        text: "One sending thread per connection is the common case, and gains most.",
        state: State::Done,
        runs: &["completion"],
        statements: &[Statement {
            id: "K31",
            text: "One sending thread gains most from polling its own completions",
            published: Published::Text("most"),
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K32",
        place: "§3.2",
        text: "One copy costs much less than setting a buffer up.",
        state: State::Done,
        runs: &["threshold"],
        statements: &[Statement {
            id: "K32",
            text: "A copy takes less time than registering and deregistering the buffer",
            published: Published::Nothing,
        }],
        ..Row::DEFAULT
    },
    Row {
        id: "K40",
        place: "Fig. 3",
        text: "Allocating and releasing a buffer is 3.5 to 6.6 % of a send.",
        state: State::Done,
        runs: &["comm-fig3"],
        statements: &[
            Statement {
                id: "K40",
                text: "Share of allocating and releasing the buffer in a send, at most",
                published: Published::Number(0.066),
            },
            Statement {
                id: "K40-bar",
                text: "That share where a send is long enough to judge it, at most",
                published: Published::Number(0.035),
            },
        ],
        ..Row::DEFAULT
    },
    Row {
        id: "K41",
        place: "Fig. 4",
        text: "Operations grow with threads at every size.",
        state: State::Done,
        runs: &["comm-fig4"],
        statements: &[Statement {
            id: "K41",
            text: "Sends per second grow with threads at every size",
            published: Published::Text("at every size"),
        }],
        ..Row::DEFAULT
    },
];
