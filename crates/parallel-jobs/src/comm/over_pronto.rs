//! Ranks as Pronto nodes, each linked with every other. Messages go into posted buffers.
//!
//! A receive is a posted buffer for which the thread of the job waits itself, by the configured policy: the message wakes that thread and no
//! other. A send is not awaited. Its bytes stay in a region of their own until the receiver has them.

use core::time::Duration;
use std::collections::VecDeque;

use pronto::rpc::TransferError;
use pronto::{Node, Peer, Receive, ReceiveError, Region, Sending, WaitPolicy};

use super::collectives;
use super::regions::Regions;
use super::{Comm, CommError, Incoming, MOST_RANKS, Outgoing, Rank, Reduction, Tag, Traffic};
use crate::outcome::{Clock as _, SystemClock};

/// Maximum number of sends in flight to a peer. Pronto permits 16.
const IN_FLIGHT: usize = 12;

/// Id of the node of rank 0. Node ids begin at 1.
const FIRST_NODE: u16 = 1;

/// The way in which the ranks of a job are connected.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of each rank, such as `tcp:10.0.0.1:7000` or `shm:@job-0`.
    pub addresses: Vec<String>,
    /// Wait policy of the thread that receives. The node's serving thread also blocks with `Block`, and otherwise waits adaptively.
    pub wait: WaitPolicy,
    /// Permits unencrypted TCP to other hosts.
    pub plaintext: bool,
    /// Maximum time until all ranks have started.
    pub start_within: Duration,
    /// Maximum time of a send or receive, which bounds how far one rank may be behind another.
    pub patience: Duration,
    /// Time without any message after which a rank is considered dead. Over shared memory, the end of a rank is noticed immediately.
    pub liveness: Duration,
}

impl Settings {
    /// Returns default settings for ranks at these addresses: waiting adaptively, for up to 10 minutes for each message.
    pub fn new(addresses: Vec<String>) -> Self {
        Self {
            addresses,
            wait: WaitPolicy::Adaptive,
            plaintext: false,
            start_within: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            liveness: Duration::from_secs(10),
        }
    }
}

/// A rank that is a Pronto node.
#[derive(Debug)]
pub struct OverPronto {
    /// By rank; `None` for this one.
    peers: Vec<Option<Other>>,
    rank: Rank,
    regions: Regions,
    traffic: Traffic,
    patience: Duration,
    liveness: Duration,
    /// Dropped last.
    node: Node,
}

/// Another rank, and the sends to it that are in flight, oldest first.
#[derive(Debug)]
struct Other {
    peer: Peer,
    sends: VecDeque<(Sending, Region)>,
}

impl OverPronto {
    /// Starts the node of `rank` and waits until it is connected with all other ranks.
    ///
    /// # Errors
    /// The number of ranks is not supported, the node cannot start, or a rank has not started in time.
    pub fn start(rank: Rank, settings: &Settings) -> Result<Self, CommError> {
        let size = settings.addresses.len();
        if !(1..=MOST_RANKS).contains(&size) {
            return Err(CommError::Size(size));
        }
        assert!(rank.0 < size, "rank {rank} of {size}");
        // Takes some milliseconds in a thread of its own, and would otherwise begin with the first long message.
        pronto::measure_thresholds();
        // With `Spin`, the job thread polls. A second polling thread per rank would compete with it for a CPU.
        let node_waits =
            if settings.wait == WaitPolicy::Block { WaitPolicy::Block } else { WaitPolicy::Adaptive };
        let mut builder = Node::builder(node_of(rank))
            .listen(&settings.addresses[rank.0])
            .wait(node_waits)
            .liveness(settings.liveness);
        if settings.plaintext {
            builder = builder.plaintext_i_understand();
        }
        // Of two ranks, the higher one connects.
        for (lower, address) in settings.addresses[..rank.0].iter().enumerate() {
            builder = builder.peer(node_of(Rank(lower)), address);
        }
        let node = builder.start()?;
        let connect = |other: usize| {
            let other = Rank(other);
            if other == rank {
                return Ok(None);
            }
            let peer = node.wait_for_peer(node_of(other), settings.start_within);
            let peer = peer.map_err(|why| CommError::NotStarted { rank: other, why })?;
            Ok(Some(Other { peer: peer.waiting(settings.wait), sends: VecDeque::new() }))
        };
        let peers = (0..size).map(connect).collect::<Result<_, CommError>>()?;
        let (regions, traffic) = (Regions::default(), Traffic::default());
        let Settings { patience, liveness, .. } = *settings;
        Ok(Self { peers, rank, regions, traffic, patience, liveness, node })
    }

    fn other(&mut self, rank: Rank) -> &mut Other {
        self.peers[rank.0].as_mut().expect("a job exchanges no messages with itself")
    }

    /// Returns the error of a send.
    fn not_sent(&self, rank: Rank, why: TransferError) -> CommError {
        let may_be_down = match why {
            TransferError::PeerDown => return CommError::Ended(rank),
            TransferError::Rejected(_) | TransferError::NotGranted(_) => true,
            _ => false,
        };
        if may_be_down && self.goes_down(rank) {
            CommError::Ended(rank)
        } else {
            CommError::NotSent { rank, why }
        }
    }

    /// Returns the error of a receive.
    fn not_received(&self, rank: Rank, why: ReceiveError) -> CommError {
        let may_be_down = match why {
            ReceiveError::PeerDown => return CommError::Ended(rank),
            ReceiveError::Rejected(_) => true,
            _ => false,
        };
        if may_be_down && self.goes_down(rank) {
            CommError::Ended(rank)
        } else {
            CommError::NotReceived { rank, why }
        }
    }

    /// Returns whether a rank is down, after an operation has failed. The link of a rank that has died fails before its session ends, so
    /// this waits for up to the liveness limit.
    fn goes_down(&self, rank: Rank) -> bool {
        let events = self.node.events();
        let is_down = || self.peers[rank.0].as_ref().is_some_and(|other| !other.peer.is_up());
        let deadline = SystemClock.now() + self.liveness;
        while !is_down() {
            let left = deadline.saturating_duration_since(SystemClock.now());
            if left.is_zero() || events.next_within(left).is_none() {
                return is_down();
            }
        }
        true
    }

    fn post(&mut self, from: Rank, tag: Tag, len: usize) -> Result<(Receive, Region), CommError> {
        let region = self.regions.take(len)?;
        let posted = self.other(from).peer.post(tag.0.into(), &region, 0..len as u64);
        Ok((posted.map_err(|why| self.not_received(from, why))?, region))
    }

    fn start_send(&mut self, outgoing: Outgoing<'_>) -> Result<(), CommError> {
        let Outgoing { to, tag, bytes } = outgoing;
        self.reap(to, IN_FLIGHT)?;
        let region = self.regions.take(bytes.len())?;
        region.write(0, bytes).expect("the region has at least this length");
        let (patience, tag, range) = (self.patience, tag.0.into(), 0..bytes.len() as u64);
        self.traffic.messages += 1;
        self.traffic.bytes += range.end;
        let other = self.other(to);
        match other.peer.start_send(tag, &region, range.clone(), patience) {
            Ok(sending) => other.sends.push_back((sending, region)),
            // Without room, this waits for it.
            Err(TransferError::Rejected(_)) => {
                let sent = other.peer.send(tag, &region, range, patience);
                sent.map_err(|why| self.not_sent(to, why))?;
                self.regions.put(region);
            }
            Err(why) => return Err(self.not_sent(to, why)),
        }
        Ok(())
    }

    /// Takes back the regions of sends that have ended, and waits until fewer than `fewer` are in flight.
    fn reap(&mut self, to: Rank, fewer: usize) -> Result<(), CommError> {
        while let Some((mut sending, region)) = self.other(to).sends.pop_front() {
            match sending.poll() {
                Some(end) => end.map_err(|why| self.not_sent(to, why))?,
                None if self.other(to).sends.len() + 1 >= fewer => {
                    sending.wait().map_err(|why| self.not_sent(to, why))?
                }
                None => {
                    self.other(to).sends.push_front((sending, region));
                    break;
                }
            }
            self.regions.put(region);
        }
        Ok(())
    }
}

impl Comm for OverPronto {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn exchange(&mut self, send: &[Outgoing<'_>], receive: &mut [Incoming<'_>]) -> Result<(), CommError> {
        // Posted first, so that no message waits for its buffer.
        let mut posted = Vec::with_capacity(receive.len());
        for incoming in receive.iter() {
            posted.push(self.post(incoming.from, incoming.tag, incoming.bytes.len())?);
        }
        for outgoing in send {
            self.start_send(*outgoing)?;
        }
        for (incoming, (mut receive, region)) in receive.iter_mut().zip(posted) {
            let (rank, expected) = (incoming.from, incoming.bytes.len());
            let got = match receive.wait(self.patience) {
                Ok(got) => got,
                Err(ReceiveError::TooLong { len }) => len,
                Err(why) => return Err(self.not_received(rank, why)),
            };
            if got != expected as u64 {
                return Err(CommError::Length { rank, got, expected });
            }
            region.read(0, incoming.bytes).expect("the region has at least this length");
            self.regions.put(region);
        }
        Ok(())
    }

    fn allreduce(&mut self, values: Reduction<'_>) -> Result<(), CommError> {
        self.traffic.collectives += 1;
        collectives::allreduce(self, values)
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        receive: &mut [u8],
        parts: (&[usize], &[usize]),
    ) -> Result<(), CommError> {
        self.traffic.collectives += 1;
        collectives::all_to_all(self, send, receive, parts)
    }

    fn barrier(&mut self) -> Result<(), CommError> {
        self.traffic.collectives += 1;
        collectives::barrier(self)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn close(&mut self) -> Result<(), CommError> {
        self.barrier()?;
        let own = self.rank;
        for rank in (0..self.size()).map(Rank).filter(|rank| *rank != own) {
            match self.reap(rank, 1) {
                // After the barrier each rank has all messages. A rank that has left before this one has acknowledged the last ones or not.
                Ok(()) | Err(CommError::Ended(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

fn node_of(rank: Rank) -> u16 {
    FIRST_NODE + u16::try_from(rank.0).expect("at most 8 ranks")
}
