//! A row: one message length with one engine, and whether its overlap counts.

use core::time::Duration;

use super::Size;
use crate::rdma::VERBS;
use crate::rendezvous::Outcome;
use crate::report::{Fields, decimals};

/// Smallest overlap that counts as full, and largest slowdown of a send and of a computation next to each other: 5 % each, chosen by us.
pub(super) const OVERLAP: f64 = 0.95;
const SLOWDOWN: f64 = 1.05;
/// Largest distance of a row's A/A from 1 at which it can show a difference of 5 %.
const STEADY: f64 = 0.05;
/// Largest distance of the control's A/A from 1 at which a send's delay is the timer's.
const QUIET: f64 = 0.25;
/// Share of the computation above which a transfer alone is too long to be hidden behind it.
const HIDDEN: f64 = 0.5;
/// Smallest number of bytes between the nodes that makes an overlap the kernel's, not ours.
const PARKED: u64 = 1 << 20;

/// Slack for one turn of the scheduler, whose longest base slice is 2.8 ms.
const TURN_US: f64 = 3_000.0;
/// Time that a send with the timer may take beyond twice its transfer: the period, and a turn of the scheduler.
pub(super) const TIMER_US: f64 = 10_000.0 + TURN_US;
const _: () = assert!(pronto_node::config::TIMER.0 == 10_000_000, "the bar is that of the default timer");

/// Returns the time after which a send with the timer is late. The timer's thread shares its CPU with the computation, so the transfer
/// itself may take twice as long as alone.
pub(super) fn limit_us(alone_us: f64) -> f64 {
    TIMER_US + 2.0 * alone_us
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) system: &'static str,
    pub(super) provider: &'static str,
    pub(super) engine: &'static str,
    pub(super) size: Size,
    pub(super) computing: Duration,
    pub(super) outcome: Outcome,
    /// Share of the sends beyond [`limit_us`], with the timer.
    pub(super) late: Option<f64>,
    /// Length of the longest eager message, bytes; `None` if it is not known.
    pub(super) carries: Option<u64>,
    pub(super) floor_us: f64,
}

/// Whether the overlap of a row counts, and is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap {
    Full,
    /// It misses a bar, for this reason.
    Below(&'static str),
    /// The row cannot show it, for this reason.
    Void(&'static str),
}

impl Row {
    /// Creates a row of a system, transport and engine.
    pub(super) const fn new(
        (system, provider, engine): (&'static str, &'static str, &'static str),
        size: Size,
        computing: Duration,
        outcome: Outcome,
    ) -> Self {
        Self {
            system,
            provider,
            engine,
            size,
            computing,
            outcome,
            late: None,
            carries: None,
            floor_us: f64::NAN,
        }
    }

    pub(super) const fn over(self, floor_us: f64) -> Self {
        Self { floor_us, ..self }
    }

    fn computing_us(&self) -> f64 {
        self.computing.as_secs_f64() * 1e6
    }

    /// Returns whether the CPUs at hand keep the pace of a device. On soft-RoCE, those of the computation and of the sender do the
    /// device's work, in emulation, so neither can keep its pace, and no two halves of a row agree.
    fn has_pace(&self) -> bool {
        self.provider != VERBS
    }

    /// Returns whether the sender waited until its receiver had computed. Without a steady pace, only the order of both shows it.
    pub(super) fn is_held(&self) -> bool {
        if self.has_pace() {
            self.outcome.send_us >= 0.9 * self.computing_us()
        } else {
            self.outcome.before_end == 0.0
        }
    }

    /// Returns whether the machine was quiet enough to bound the delay of the timer's sends, which vary by themselves.
    pub(super) fn is_quiet(&self) -> bool {
        (self.outcome.control_aa - 1.0).abs() <= QUIET
    }

    fn is_by_reference(&self) -> bool {
        self.carries.is_none_or(|carries| self.size.bytes > carries)
    }

    /// Returns the number of bytes between sender's and receiver's buffer: in sockets, over TCP, and in the message itself if it was
    /// eager. Over shared memory and verbs, messages by reference are read out of the sender's memory. Unknown for an MPI.
    fn parked(&self) -> Option<u64> {
        let carried = if self.is_by_reference() { 0 } else { self.size.bytes };
        match (self.system, self.provider) {
            ("pronto", "shm" | VERBS) => Some(carried),
            ("pronto", "tcp") => Some(self.outcome.parked?.max(carried)),
            _ => None,
        }
    }

    /// Returns whether the overlap counts, and is full.
    pub(super) fn judged(&self) -> Overlap {
        let Outcome { alone_us, send_us, stretch, before_end, aa, .. } = self.outcome;
        let has_pace = self.has_pace();
        match () {
            () if !self.is_by_reference() => Overlap::Void("eager"),
            () if alone_us > HIDDEN * self.computing_us() => {
                Overlap::Void("longer than half the computation")
            }
            () if self.parked().is_none() => Overlap::Void("parked bytes are unknown"),
            () if self.parked().is_some_and(|parked| parked >= PARKED) => {
                Overlap::Below("too many parked bytes")
            }
            () if before_end < 0.5 => Overlap::Below("the last byte came after the computation"),
            () if has_pace && (aa.is_nan() || (aa - 1.0).abs() > STEADY) => Overlap::Void("A/A"),
            () if before_end < 1.0 => Overlap::Below("a last byte came after the computation"),
            () if has_pace && send_us > SLOWDOWN * alone_us => {
                Overlap::Below("the send took longer than alone")
            }
            () if has_pace && stretch > SLOWDOWN => Overlap::Below("the computation was stretched"),
            () if self.outcome.overlap() < OVERLAP => Overlap::Below("the receiver waited"),
            () => Overlap::Full,
        }
    }

    pub(super) fn fields(&self) -> Fields {
        let Outcome { alone_us, waited_us, send_us, aa, control_aa, .. } = self.outcome;
        let Outcome { longest_us, wait_us, stretch, before_end, .. } = self.outcome;
        let is_ours = self.system == "pronto";
        let counts = match self.judged() {
            _ if !is_ours => "-".to_owned(),
            Overlap::Full => "yes".to_owned(),
            Overlap::Below(why) => why.to_owned(),
            Overlap::Void(why) => format!("void: {why}"),
        };
        Fields::default()
            .with("system", self.system)
            .with("provider", self.provider)
            .with("engine", self.engine)
            .with("size", self.size.bytes)
            .with("transfer_alone_us", decimals(alone_us, 1))
            .with("transfer_waited_us", decimals(waited_us, 1))
            .with("send_us", decimals(send_us, 1))
            .with("aa", decimals(aa, 2))
            .with("control_aa", decimals(control_aa, 2))
            .with("send_max_us", decimals(longest_us, 1))
            .with("late", self.late.map(|late| decimals(late, 3)))
            .with("receiver_wait_us", decimals(wait_us, 2))
            .with("compute_stretch", decimals(stretch, 3))
            .with("parked_bytes", self.parked())
            .with("carries", self.carries)
            .with("last_byte_before_compute_end", decimals(before_end, 2))
            .with("overlap", decimals(self.outcome.overlap(), 3))
            .with("counts", counts)
            .with("floor_us", decimals(self.floor_us, 1))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{COMPUTING, SIZES};
    use super::*;

    /// Returns a row over shared memory, whose transfer alone takes 100 us.
    pub(in super::super) fn row(
        system: &'static str,
        engine: &'static str,
        send_us: f64,
        wait_us: f64,
    ) -> Row {
        let outcome = Outcome {
            alone_us: 100.0,
            waited_us: 90.0,
            send_us,
            aa: 1.0,
            control_aa: 1.0,
            longest_us: send_us,
            wait_us,
            stretch: 1.01,
            before_end: 1.0,
            parked: None,
        };
        Row { carries: Some(4 << 10), ..Row::new((system, "shm", engine), SIZES[4], COMPUTING, outcome) }
    }

    #[test]
    fn an_overlap_counts_only_under_all_conditions() {
        let change = |change: &dyn Fn(&mut Row)| {
            let mut row = row("pronto", "idle", 104.0, 2.0);
            change(&mut row);
            row.judged()
        };
        assert_eq!(change(&|_| ()), Overlap::Full);
        let below = |why| Overlap::Below(why);
        assert_eq!(change(&|row| row.outcome.send_us = 106.0), below("the send took longer than alone"));
        assert_eq!(change(&|row| row.outcome.stretch = 1.06), below("the computation was stretched"));
        assert_eq!(change(&|row| row.outcome.wait_us = 6.0), below("the receiver waited"));
        assert_eq!(
            change(&|row| row.outcome.before_end = 0.9),
            below("a last byte came after the computation")
        );
        assert_eq!(change(&|row| row.carries = Some(row.size.bytes)), Overlap::Void("eager"));
        let over_tcp = |row: &mut Row, parked| {
            row.provider = "tcp";
            row.outcome.parked = parked;
        };
        assert_eq!(change(&|row| over_tcp(row, None)), Overlap::Void("parked bytes are unknown"));
        assert_eq!(change(&|row| over_tcp(row, Some(600 << 10))), Overlap::Full);
        assert_eq!(change(&|row| over_tcp(row, Some(1 << 20))), below("too many parked bytes"));
    }

    #[test]
    fn a_row_is_void_where_noise_or_length_hides_the_overlap() {
        let change = |change: &dyn Fn(&mut Outcome)| {
            let mut row = row("pronto", "idle", 104.0, 2.0);
            change(&mut row.outcome);
            row.judged()
        };
        for aa in [0.94, 1.06, f64::NAN] {
            assert_eq!(change(&|outcome| outcome.aa = aa), Overlap::Void("A/A"));
        }
        // Noise does not excuse a message that mostly arrives after the computation.
        let late = |outcome: &mut Outcome| (outcome.aa, outcome.before_end) = (1.3, 0.4);
        assert_eq!(change(&late), Overlap::Below("the last byte came after the computation"));
        let long = |outcome: &mut Outcome| outcome.alone_us = 30_000.0;
        assert_eq!(change(&long), Overlap::Void("longer than half the computation"));
    }

    #[test]
    fn the_pace_of_a_software_device_is_not_judged() {
        let mut row = Row { provider: VERBS, ..row("pronto", "idle", 300.0, 2.0) };
        (row.outcome.stretch, row.outcome.aa) = (1.8, 2.5);
        assert_eq!(row.judged(), Overlap::Full);
        assert!(
            !row.is_held() && Row { outcome: Outcome { before_end: 0.0, ..row.outcome }, ..row }.is_held()
        );
        row.outcome.wait_us = 50.0;
        assert_eq!(row.judged(), Overlap::Below("the receiver waited"));
    }
}
