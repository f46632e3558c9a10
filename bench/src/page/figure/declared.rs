//! The figures of the papers, and some of our own, as data. Values of a paper are those that its text or tables state.

use super::{Axis, Drawn, Form, Measure};
use crate::page::value::Unit;

const fn column(name: &'static str) -> Measure {
    Measure::of(name)
}

/// Returns lines over a measure.
const fn over(x: &'static str, axis: Axis, title: &'static str) -> Form {
    Form::Lines { x: column(x), axis, title, points: &[] }
}

const fn axis(title: &'static str, unit: Unit) -> Axis {
    Axis { title, unit, logarithmic: false }
}

const fn log_axis(title: &'static str, unit: Unit) -> Axis {
    Axis { title, unit, logarithmic: true }
}

const SIZE: Axis = log_axis("payload", Unit::Bytes);
const THREADS: Axis = axis("sending threads", Unit::Plain);
const LOCAL: Axis = axis("local tasks per node", Unit::Plain);
const SLEEPERS: Axis = axis("processes that mostly sleep", Unit::Plain);

/// Every figure; those of one experiment in the order of the page.
pub(super) const ALL: &[Drawn] = &[
    Drawn {
        experiment: "comm-fig1",
        title: "Fig. 1: share of setting up the buffer in a transfer, over the paper's wire by a model",
        paper: "The paper draws the parts of a transfer. Its text gives up to 98 % for the buffer (section 3.1).",
        values: &[(column("modelled_share"), "")],
        unit: Unit::Share,
        marks: &[(0.98, "the paper: up to 98 %")],
        form: Form::Bars { names: &["size", "pages"], published: &[] },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "comm-fig2",
        title: "Fig. 2: share of the messages, and of the bytes, up to a payload",
        paper: "The paper's text gives 74.4 % of the messages below a hundred bytes, and 97.1 % of the bytes in large operations \
                (section 3.1).",
        panels: &["provider"],
        values: &[(column("messages_up_to"), "messages"), (column("bytes_up_to"), "bytes")],
        unit: Unit::Share,
        form: Form::Lines {
            x: column("length"),
            axis: SIZE,
            title: "share of the whole",
            points: &[("the paper: messages below 100 B", &[(100.0, 0.744)])],
        },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "comm-fig3",
        title: "Fig. 3: parts of the time of a send; the number is the share of the buffer",
        paper: "The paper draws the same parts. Its text gives 3.5 % to 6.6 % for allocating and releasing the buffer (section 4).",
        panels: &["provider"],
        values: &[(column("alloc_ns"), "allocate"), (column("release_ns"), "release")],
        unit: Unit::Share,
        marks: &[(0.035, "the paper: 3.5 % to 6.6 %"), (0.066, "the paper: 3.5 % to 6.6 %")],
        form: Form::Shares { names: &["size"], whole: &[column("send_ns")], rest: "transfer" },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "comm-fig4",
        title: "Fig. 4: sends per second, as a multiple of those of one thread",
        paper: "In the paper the curves of all sizes rise with the threads; its text gives no values (section 4).",
        panels: &["provider"],
        series: &["size"],
        values: &[(column("normalised"), "")],
        unit: Unit::Multiple,
        form: over("threads", THREADS, "sends per second to one thread"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "completion",
        title: "Section 3.2: median time of a synchronous send, by the thread that polls for its completion",
        paper: "The paper has no figure. Its text says that the dedicated thread costs up to hundreds of microseconds (section 3.2).",
        panels: &["provider", "wait"],
        series: &["design"],
        values: &[(column("p50_ns"), "")],
        unit: Unit::NS,
        logarithmic: true,
        form: over("threads", THREADS, "median time of a send"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "threshold",
        title: "Section 3.2: time of a send, copied and by reference, and of setting up new memory for a reference",
        paper: "The paper has no figure, and gives no size from which a reference is better.",
        panels: &["provider"],
        values: &[
            (column("copied_ns"), "copied"),
            (column("reference_ns"), "by reference"),
            (column("setup_ns"), "set-up of new memory"),
        ],
        unit: Unit::NS,
        logarithmic: true,
        form: over("size", SIZE, "time"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "pioman-fig3",
        title: "Fig. 3: time of a send while its receiver computes",
        paper: "The text of the paper gives about 50 ms for the computation (Table 1), and 10 ms as the bound with its timer; with \
                progress on another CPU the send does not suffer (section 4).",
        panels: &["provider"],
        series: &["system", "engine"],
        values: &[(column("send_us"), "")],
        unit: Unit::US,
        logarithmic: true,
        floor: Some(column("floor_us")),
        marks: &[
            (50_000.0, "the paper: computation of about 50 ms"),
            (10_000.0, "the paper: bound of the timer, 10 ms"),
        ],
        form: over("size", SIZE, "time of a send"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "pioman-table2",
        title: "Table 2: time of a poll and of an event that find nothing, by engine",
        paper: "The paper's columns are without threads (none), mono (timer) and SMP (idle), on a 1.8 GHz Opteron.",
        only: &[("what", &["poll", "event"]), ("sources", &["1"])],
        values: &[(column("ns"), "")],
        unit: Unit::NS,
        logarithmic: true,
        form: Form::Bars { names: &["what", "engine"], published: &[column("paper_us").times(1e3)] },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "pioman-table2",
        title: "Small messages: time of a 32 B call without and with an engine",
        paper: "The paper says that small messages take as long with progress as without (section 4), and gives no values.",
        only: &[("what", &["call"])],
        values: &[(column("ns"), "")],
        unit: Unit::NS,
        logarithmic: true,
        form: Form::Bars { names: &["provider", "engine"], published: &[] },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "overlap-tables",
        title: "Tables 2 to 4: time of both programs together, as a multiple of their times alone",
        paper: "Of the report, seconds together divided by those alone (Table 1; 63.1 s for the computation). Table 2 is block at nice \
                0, Table 3 block at -20 and 19 (20 in the report), Table 4 spin at 0.",
        only: &[("buffers", &["prefaulted"])],
        panels: &["wait", "nice"],
        values: &[
            (column("dping_s").per("dping_alone_s"), "ping-pong"),
            (column("burn_s").per("burn_alone_s"), "computation"),
        ],
        unit: Unit::Multiple,
        logarithmic: true,
        form: Form::Bars {
            names: &["provider", "dping"],
            published: &[
                column("paper_dping_s").per("paper_dping_alone_s"),
                column("paper_burn_s").times(1.0 / crate::overlap::row::BURN_S),
            ],
        },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "expedite-sim",
        title: "Figs. 1 and 2: longest round trip without (1) and with Expedite (2)",
        paper: "The paper draws the round trip of each ping. Its text gives delays of over 5 ms without Expedite (section 6), and no \
                significant ones with it (section 4.2).",
        only: &[("figure", &["1a", "1b", "2a", "2b"])],
        values: &[(column("longest_us"), "")],
        unit: Unit::US,
        marks: &[(5_000.0, "the paper: delays of over 5 ms without Expedite")],
        form: Form::Bars { names: &["figure", "background"], published: &[] },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "expedite-sim",
        title: "Fig. 7: mean time in a scatter, by rank: polling (a), blocking (b), with Expedite (c)",
        paper: "The text of the paper: with top on rank 4, ranks 5 to 7 wait for over 6 ms when they poll (section 5.1). A blocking \
                thread removes over 5 ms of that, and leaves 500 us (5.2); with Expedite almost nothing is left (5.3).",
        only: &[("figure", &["7-unloaded", "7a", "7b", "7c"])],
        panels: &["figure"],
        values: &[(column("mean_us"), "")],
        unit: Unit::US,
        marks: &[(6_000.0, "the paper: over 6 ms for ranks 5 to 7 in (a)")],
        marked: "7a",
        form: Form::Bars { names: &["who"], published: &[] },
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "expedite-fig1",
        title: "Fig. 1: share of pings that are late by a millisecond, without Expedite",
        paper: "The paper draws the round trip of each ping, with none and with two such processes, and gives no shares (section 4.1).",
        series: &["setting"],
        values: &[(column("late"), "")],
        unit: Unit::Share,
        form: over("sleepers", SLEEPERS, "share of late pings"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "expedite-fig2",
        title: "Fig. 2: share of pings that are late by a millisecond, with Expedite and other settings",
        paper: "The paper draws the round trip of each ping: with two such processes none is significantly late (section 4.2).",
        only: &[("preempt", &["lazy"]), ("place", &["pinned"])],
        series: &["setting"],
        values: &[(column("late"), "")],
        unit: Unit::Share,
        form: over("sleepers", SLEEPERS, "share of late pings"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "cosched-sim",
        title: "Figs. 2 to 4: simulated time of an application, by policy and weight of the past (p)",
        paper: "The paper draws bars over local tasks and models; its text gives no values.",
        only: &[
            ("policy", &["linux", "dyn", "pred"]),
            ("preemption", &["goodness"]),
            ("reading", &["text"]),
            ("measure", &["-", "packets"]),
        ],
        panels: &["app"],
        series: &["policy", "p"],
        values: &[(column("seconds"), "")],
        unit: Unit::S,
        form: over("local_tasks", LOCAL, "time"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "wait-sim",
        title: "Section 1: simulated time of a job, by its way of waiting",
        paper: "The paper has no figure: it says that active waiting loses in time sharing (section 1).",
        only: &[("policy", &["linux", "pred"])],
        panels: &["policy", "network"],
        series: &["wait"],
        values: &[(column("seconds"), "")],
        unit: Unit::S,
        form: over("local_tasks", LOCAL, "time"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "cosched-scale",
        title: "Simulated time of a job, as a multiple of that alone",
        series: &["policy"],
        values: &[(column("slowdown"), "")],
        unit: Unit::Multiple,
        form: over("nodes", log_axis("nodes", Unit::Plain), "time to that alone"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "load",
        title: "Latency of calls that are due at fixed intervals: 99th percentile",
        panels: &["provider"],
        series: &["scenario"],
        values: &[(column("p99_ns"), "")],
        unit: Unit::NS,
        logarithmic: true,
        form: over("load", axis("offered load to the closed-loop rate", Unit::Share), "99th percentile"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "adaptive",
        title: "Median time of a call that comes after a pause",
        paper: "The paper has no figure: it says what polling and sleeping cost, and that the upper layer's preference decides (section 3).",
        only: &[("boost", &["none"])],
        panels: &["competing"],
        series: &["wait"],
        values: &[(column("p50_us"), "")],
        unit: Unit::US,
        logarithmic: true,
        form: over("gap_us", log_axis("pause between calls", Unit::US), "median time of a call"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "rate",
        title: "Pipelined calls of 32 B per second",
        only: &[("kind", &["call"]), ("size", &["32"]), ("coalesce", &["on"])],
        panels: &["provider"],
        series: &["wait", "threads"],
        values: &[(column("rpc_per_s"), "")],
        unit: Unit::Named("/s"),
        logarithmic: true,
        form: over("window", log_axis("open calls per thread", Unit::Plain), "calls per second"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "bulk",
        title: "Long messages into posted buffers, every byte read, several under way: GB per second",
        only: &[("read", &["posted"]), ("window", &["pipelined"])],
        panels: &["provider"],
        series: &["peer", "setting"],
        values: &[(column("gbytes_per_s"), "")],
        unit: Unit::Named("GB/s"),
        form: over("size", SIZE, "GB per second"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "bulk",
        title: "Long messages into posted buffers, every byte read, one at a time: GB per second",
        only: &[("read", &["posted"]), ("window", &["one"])],
        panels: &["provider"],
        series: &["peer", "setting"],
        values: &[(column("gbytes_per_s"), "")],
        unit: Unit::Named("GB/s"),
        form: over("size", SIZE, "GB per second"),
        ..Drawn::DEFAULT
    },
    Drawn {
        experiment: "bulk",
        title: "Long messages read in place, every byte, several under way: GB per second",
        only: &[("read", &["in-place"]), ("window", &["pipelined"])],
        panels: &["provider"],
        series: &["peer", "setting"],
        values: &[(column("gbytes_per_s"), "")],
        unit: Unit::Named("GB/s"),
        form: over("size", SIZE, "GB per second"),
        ..Drawn::DEFAULT
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments;

    #[test]
    fn every_figure_belongs_to_an_experiment_and_has_a_title() {
        for drawn in ALL {
            let experiment = experiments::find(drawn.experiment);
            assert!(experiment.is_some(), "{}", drawn.experiment);
            assert!(!drawn.title.is_empty() && !drawn.values.is_empty(), "{drawn:?}");
            let of_paper = experiment.is_some_and(|experiment| experiment.figure.is_some());
            assert!(!of_paper || !drawn.paper.is_empty(), "{}: what does the paper give?", drawn.experiment);
        }
    }

    /// The other experiments draw their figures themselves, or only compare rows of one kind.
    #[test]
    fn every_figure_and_table_of_a_paper_is_drawn() {
        let is_drawn = |name: &str| ALL.iter().any(|drawn| drawn.experiment == name);
        for name in [
            "comm-fig1",
            "comm-fig3",
            "comm-fig2",
            "comm-fig4",
            "pioman-fig3",
            "pioman-table2",
            "overlap-tables",
        ] {
            assert!(is_drawn(name), "{name}");
        }
        for name in ["expedite-sim", "cosched-sim", "expedite-fig1", "expedite-fig2"] {
            assert!(is_drawn(name), "{name}");
        }
    }
}
