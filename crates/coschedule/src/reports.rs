//! Reports of other nodes: how much the processes at the other ends of connections communicate.

use std::collections::BTreeMap;

use pronto_sched_policy::policy::level::Level;

use crate::socket::Connection;

/// Periods after which a report is forgotten, unless it was repeated. Longer than a report takes that missed its period.
const LIFE: u8 = 4;

/// Largest number of reports that a peer may have.
const PER_PEER: usize = 4_096;

/// The reports of all peers.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    peers: BTreeMap<u16, BTreeMap<Connection, Report>>,
}

#[derive(Clone, Copy, Debug)]
struct Report {
    level: Level,
    life: u8,
}

impl Reports {
    /// Enters reports of a peer. Those beyond its maximum are ignored.
    pub(crate) fn receive(&mut self, peer: u16, reports: impl IntoIterator<Item = (Connection, Level)>) {
        let known = self.peers.entry(peer).or_default();
        for (connection, level) in reports {
            if known.len() < PER_PEER || known.contains_key(&connection) {
                known.insert(connection, Report { level, life: LIFE });
            }
        }
    }

    /// Ends a period.
    pub(crate) fn age(&mut self) {
        self.peers.retain(|_, reports| {
            reports.retain(|_, report| {
                report.life -= 1;
                report.life > 0
            });
            !reports.is_empty()
        });
    }

    /// Returns the largest frequency that was reported for a connection.
    pub(crate) fn level(&self, connection: Connection) -> Level {
        let levels = self.peers.values().filter_map(|reports| reports.get(&connection));
        levels.map(|report| report.level).max().unwrap_or(Level::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(port: u16) -> Connection {
        Connection { protocol: 6, local: ([10, 0, 0, 1], port).into(), remote: ([10, 0, 0, 2], 9).into() }
    }

    #[test]
    fn a_report_is_forgotten_unless_it_is_repeated() {
        let mut reports = Reports::default();
        for _ in 0..10 {
            reports.receive(2, [(connection(1), Level::PACKET)]);
            reports.age();
            assert_eq!(reports.level(connection(1)), Level::PACKET);
        }
        assert_eq!(reports.level(connection(2)), Level::ZERO);
        (1..LIFE).for_each(|_| reports.age());
        assert_eq!(reports.level(connection(1)), Level::ZERO);
        assert!(reports.peers.is_empty());
    }

    #[test]
    fn a_peer_has_a_bounded_number_of_reports() {
        let mut reports = Reports::default();
        for port in 0..=u16::MAX {
            reports.receive(2, [(connection(port), Level::PACKET)]);
        }
        assert_eq!(reports.peers[&2].len(), PER_PEER);
        reports.receive(3, [(connection(9_999), Level::packets(2))]);
        assert_eq!(reports.level(connection(9_999)), Level::packets(2), "other peers are not affected");
    }
}
