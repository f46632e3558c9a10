//! Links: the time that a message takes between two nodes, including queueing.

use pronto_sched_policy::policy::time::Nanos;

/// The connection between any two nodes: each has one line into a switch that is never the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time from the last byte sent to the arrival interrupt, through wires, switch and both kernels.
    pub latency: Nanos,
    /// Bytes per second of each line, in each direction.
    pub bandwidth: u64,
    /// Header bytes of every fragment.
    pub header: u32,
    /// Largest payload of one fragment, in bytes.
    pub fragment: u32,
    /// Bytes that a socket holds for sending, and the same for receiving. If the buffer is full, a sender waits.
    pub buffer: u32,
}

impl Link {
    /// Switched Ethernet of 100 Mb/s, with the "minimal latency in the order of 0.1 ms" of the coscheduling paper's
    /// section 4; Expedite's machines have the same network (section 4). A fragment is "the socket transmission unit"
    /// of that paper (section 3), 4096 bytes, and carries the 66 bytes of Ethernet, IP and TCP with time stamps for
    /// each of its three frames. Buffers are those of Linux 2.2 and 2.4 (`net/core/sock.c`: 64 KiB).
    pub const ETHERNET_100: Self = Self {
        latency: Nanos::from_micros(100),
        bandwidth: 100_000_000 / 8,
        header: 3 * 66,
        fragment: 4096,
        buffer: 65_536,
    };

    /// Returns how long a fragment occupies a line.
    #[must_use]
    pub fn occupies(&self, bytes: u32) -> Nanos {
        let bits = (u64::from(bytes) + u64::from(self.header)) * 1_000_000_000;
        Nanos(bits.checked_div(self.bandwidth).unwrap_or(0))
    }
}

/// Times until which a node's line is occupied, in each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) sending_until: Nanos,
    pub(crate) receiving_until: Nanos,
}

impl Line {
    /// Hands a fragment over at `now`. It waits for the sender's line, then for the receiver's. Returns the arrival
    /// time.
    pub(crate) fn carry(
        sender: &mut Self,
        receiver: &mut Self,
        link: &Link,
        bytes: u32,
        now: Nanos,
    ) -> Nanos {
        let time = link.occupies(bytes);
        let sent = sender.sending_until.max(now).after(time);
        sender.sending_until = sent;
        // The switch forwards a fragment while it comes in, unless the receiver's line is occupied.
        let received = receiver.receiving_until.after(time).max(sent);
        receiver.receiving_until = received;
        received.after(link.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_wait_for_both_lines() {
        let link = Link { header: 0, bandwidth: 1_000_000_000, latency: Nanos(5), ..Link::ETHERNET_100 };
        let (mut a, mut b, mut c) = (Line::default(), Line::default(), Line::default());
        assert_eq!(Line::carry(&mut a, &mut c, &link, 100, Nanos(0)), Nanos(105));
        assert_eq!(Line::carry(&mut a, &mut c, &link, 100, Nanos(0)), Nanos(205), "the sender's line");
        assert_eq!(Line::carry(&mut b, &mut c, &link, 100, Nanos(0)), Nanos(305), "the receiver's line");
    }

    #[test]
    fn a_full_frame_takes_a_hundredth_of_a_second_for_125_kilobytes() {
        let link = Link { header: 0, ..Link::ETHERNET_100 };
        assert_eq!(link.occupies(125_000), Nanos::from_millis(10));
    }
}
