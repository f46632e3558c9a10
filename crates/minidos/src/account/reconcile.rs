//! The equations between messages and causes: every message has a cause, and every cause its message.

use serde::Serialize;

use super::{Cause, Traffic};
use crate::messages::Kind;

/// Sums of the counts of all nodes.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Messages.
    pub traffic: Traffic,
    /// Causes, in the order of [`Cause::ALL`].
    pub causes: Vec<u64>,
}

/// Two numbers, counted in different places, that must be equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Equation {
    /// Names of the message types.
    pub messages: String,
    /// Number of messages received.
    pub received: u64,
    /// Names of the causes.
    pub causes: String,
    /// Number of occurrences of the causes.
    pub caused: u64,
}

impl Equation {
    /// Returns whether both sides are equal.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.received == self.caused
    }
}

/// Returns all equations with the numbers of a run.
#[must_use]
pub fn reconcile(totals: &Totals) -> Vec<Equation> {
    let caused = |cause: Cause| totals.causes.get(cause as usize).copied().unwrap_or(0);
    let equation = |(kinds, causes): &(&[Kind], &[Cause])| Equation {
        messages: join(kinds.iter().map(|kind| kind.name())),
        received: kinds.iter().map(|kind| totals.traffic.of(*kind).received).sum(),
        causes: join(causes.iter().map(|cause| cause.text())),
        caused: causes.iter().map(|cause| caused(*cause)).sum(),
    };
    EQUATIONS.iter().map(equation).collect()
}

fn join<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" + ")
}

/// Requests paired with what made them necessary, and responses paired with what was done for them.
const EQUATIONS: &[(&[Kind], &[Cause])] = &[
    (&[Kind::NodeInfo], &[Cause::Announced]),
    (&[Kind::TaskMigrate], &[Cause::HandedOver]),
    (&[Kind::TaskPairing], &[Cause::Started]),
    (&[Kind::TaskMigrate], &[Cause::MigratedBack, Cause::EndedRemotely]),
    (&[Kind::TaskMigrateBack], &[Cause::MigratedBack]),
    (&[Kind::TaskExitRemote], &[Cause::EndedRemotely]),
    (&[Kind::TaskExitOrigin], &[Cause::ProcessEnded]),
    (&[Kind::VmaInfoRequest], &[Cause::RangeMissed]),
    (&[Kind::VmaInfoResponse], &[Cause::RangeLookedUp]),
    (&[Kind::VmaOpRequest], &[Cause::MappedRemotely]),
    (&[Kind::VmaOpResponse], &[Cause::MappedFor]),
    (&[Kind::RemotePageRequest], &[Cause::Faulted, Cause::WriterRecalled]),
    (&[Kind::RemotePageResponse], &[Cause::GrantedContents, Cause::ReturnedContents]),
    (&[Kind::RemotePageResponseShort], &[Cause::GrantedRight, Cause::ReturnedEarlier]),
    (&[Kind::RemotePageResponse, Kind::RemotePageResponseShort], &[Cause::Faulted, Cause::WriterRecalled]),
    (&[Kind::PageInvalidateRequest], &[Cause::ReaderRevoked]),
    (&[Kind::PageInvalidateResponse], &[Cause::CopyDropped]),
    (&[Kind::RemotePageRelease], &[Cause::EvictedRead]),
    (&[Kind::RemotePageFlush], &[Cause::EvictedWritten]),
    (&[Kind::RemotePageFlushAck], &[Cause::ReturnNoted]),
    (&[Kind::FutexRequest], &[Cause::Slept, Cause::Woke]),
    (&[Kind::FutexResponse], &[Cause::FutexResponded]),
    (&[Kind::Signal], &[Cause::Signalled]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns numbers that reconcile: one task away, one fault with contents, one upgrade, one recall, one futex wait, etc.
    fn balanced() -> Totals {
        let mut traffic = Traffic::default();
        for kind in Kind::ALL {
            let requests = u64::from(kind == Kind::RemotePageRequest) * 4;
            let responses =
                u64::from(matches!(kind, Kind::RemotePageResponse | Kind::RemotePageResponseShort)) * 2;
            traffic.0[kind.index()].received = match requests + responses {
                0 => 1,
                page => page,
            };
        }
        // One task came back and one ended: two were handed over.
        for kind in [Kind::TaskMigrate, Kind::TaskPairing, Kind::FutexRequest, Kind::FutexResponse] {
            traffic.0[kind.index()].received = 2;
        }
        traffic.0[Kind::RemotePageFlushAck.index()].received = 2;
        let mut causes = vec![1; Cause::ALL.len()];
        for cause in
            [Cause::HandedOver, Cause::Started, Cause::ReturnNoted, Cause::FutexResponded, Cause::Faulted]
        {
            causes[cause as usize] = 2;
        }
        causes[Cause::WriterRecalled as usize] = 2;
        Totals { traffic, causes }
    }

    #[test]
    fn balanced_books_reconcile() {
        let broken: Vec<_> =
            reconcile(&balanced()).into_iter().filter(|equation| !equation.holds()).collect();
        assert_eq!(broken, []);
    }

    #[test]
    fn one_message_too_many_of_any_type_is_found() {
        for kind in Kind::ALL {
            let mut totals = balanced();
            totals.traffic.0[kind.index()].received += 1;
            assert!(reconcile(&totals).iter().any(|equation| !equation.holds()), "{}", kind.name());
        }
    }

    #[test]
    fn one_cause_too_many_of_any_kind_is_found() {
        for cause in Cause::ALL {
            let mut totals = balanced();
            totals.causes[cause as usize] += 1;
            assert!(reconcile(&totals).iter().any(|equation| !equation.holds()), "{cause:?}");
        }
    }

    #[test]
    fn a_broken_equation_names_both_sides() {
        let mut totals = balanced();
        totals.causes[Cause::Slept as usize] += 1;
        let broken = reconcile(&totals).into_iter().find(|equation| !equation.holds()).unwrap();
        assert_eq!((&*broken.messages, broken.received), ("futex_request", 2));
        assert_eq!((&*broken.causes, broken.caused), ("futex waits + futex wakes", 3));
    }
}
