//! The structures that the loader and the BPF program share: those of `kernel/scx/pronto_scx.h`.

use pronto_expedite::scx::{Counters, Prediction, PredictionTerms};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// `PRONTO_SCX_VERSION`.
pub(crate) const VERSION: u32 = 3;

/// `struct terms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawTerms {
    pub(crate) epoch: u64,
    pub(crate) grant: u64,
    pub(crate) floor: u64,
}

/// `struct parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawParameters {
    pub(crate) version: u32,
    pub(crate) cpus: u32,
    pub(crate) slice: u64,
    pub(crate) thread: RawTerms,
    pub(crate) user: RawTerms,
    pub(crate) cpu: RawTerms,
}

/// `struct report`, whose counters are those of [`Counters::by_name`].
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct RawReport {
    pub(crate) has_exited: u32,
    pub(crate) kind: u32,
    pub(crate) code: i64,
    pub(crate) reason: [u8; 128],
    pub(crate) message: [u8; 1024],
    pub(crate) counters: [u64; Counters::NUMBER],
}

/// `struct flag`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawFlag {
    pub(crate) payer: u32,
    pub(crate) reserved: u32,
}

/// `struct weight`.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawWeight {
    pub(crate) hundredths: u32,
    pub(crate) reserved: u32,
}

/// `struct terms_of_prediction`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RawTermsOfPrediction {
    pub(crate) pid: u32,
    pub(crate) past: u32,
    pub(crate) most: u32,
    pub(crate) counts_sent: u32,
    pub(crate) period: u64,
}

impl RawTermsOfPrediction {
    /// Returns the terms for a process; `pid` is its number in the first namespace.
    pub(crate) fn new(pid: u32, terms: &PredictionTerms) -> Self {
        Self {
            pid,
            past: terms.past.as_millionths(),
            most: terms.most.as_hundredths(),
            counts_sent: terms.counts_sent.into(),
            period: u64::try_from(terms.period.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

/// `struct prediction`: `struct prediction_report`, and what the program keeps for itself.
#[derive(Clone, Copy, Debug, FromBytes)]
#[repr(C)]
pub(crate) struct RawPrediction {
    pub(crate) report: [u64; Prediction::NUMBER],
    _own: [u64; 8],
}

#[cfg(test)]
mod tests {
    use pronto_sched_policy::policy::weight::Weight;

    use super::*;

    /// The header, with the types that BPF programs get from the kernel.
    const HEADER: &str = include_str!("../../../kernel/scx/pronto_scx.h");

    #[test]
    fn the_version_is_that_of_the_header() {
        assert!(HEADER.contains(&format!("#define PRONTO_SCX_VERSION {VERSION}\n")));
    }

    #[test]
    fn the_counters_are_those_of_the_header() {
        let (_, rest) = HEADER.split_once("struct counters {").unwrap();
        let (list, _) = rest.split_once("};").unwrap();
        let fields = list.lines().filter_map(|line| line.trim().strip_prefix("u64 ")?.split(';').next());
        assert!(fields.eq(Counters::default().by_name().iter().map(|(name, _)| *name)));
    }

    #[test]
    fn the_sizes_are_those_of_the_header() {
        let sizes = [
            size_of::<RawParameters>(),
            size_of::<RawReport>(),
            size_of::<RawFlag>(),
            size_of::<RawWeight>(),
            size_of::<RawTermsOfPrediction>(),
            size_of::<RawPrediction>(),
        ];
        assert_eq!(sizes, [16 + 3 * 24, 16 + 128 + 1024 + 9 * 8, 8, 8, 24, 11 * 8 + 24 + 24 + 16]);
    }

    #[test]
    fn the_values_of_a_prediction_are_those_of_the_header() {
        let (_, rest) = HEADER.split_once("struct prediction_report {").unwrap();
        let (list, _) = rest.split_once("};").unwrap();
        let fields = list.lines().filter_map(|line| line.trim().strip_prefix("u64 ")?.split(';').next());
        let expected = [
            "begun_ns",
            "level",
            "weight",
            "sockets",
            "samples",
            "with_received",
            "with_sent",
            "changes",
            "changed_ns",
            "worked_ns",
            "longest_ns",
        ];
        assert!(fields.eq(expected));
    }

    #[test]
    fn the_bounds_of_weights_are_those_of_the_header() {
        const PREDICTOR: &str = include_str!("../../../kernel/scx/predictor.h");
        let bounds = [("LEAST", Weight::ORDINARY), ("MOST", Weight::LIMIT)];
        for (name, weight) in bounds {
            let line = format!("#define WEIGHT_{name} {}\n", weight.as_hundredths());
            assert!(PREDICTOR.contains(&line), "{line}");
        }
    }
}
