//! A peer that reads nothing, and one that is gone. The kernel of the first one answers, and only the second one is
//! lost.

use nix::sys::socket::{getsockopt, setsockopt};
use pronto_core::fabric::Armed;

use super::*;
use crate::silence::{ConnectionInfo, TcpInfo};

mod kernel {
    //! Options that nix has no name for.
    use nix::sys::socket::sockopt::SetStruct;

    /// SO_ATTACH_FILTER of socket(7).
    #[derive(Clone, Copy, Debug)]
    pub(super) struct AttachFilter;
    nix::setsockopt_impl!(
        AttachFilter,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        libc::sock_fprog,
        SetStruct<'_, libc::sock_fprog>
    );
}

/// Time limit for an answer in these tests: shorter than the interval to the second probe of a closed window.
const ANSWER_MS: u64 = 300;
/// Maximum number of rounds of at most 10 ms before a test fails.
const ROUNDS: u32 = 1500;

/// Returns a queue pair with a short time limit, and its peer's end.
fn impatient() -> (TcpQueuePair, TcpStream) {
    let (a, b) = streams();
    let options = Options { answer_timeout: Duration::from_millis(ANSWER_MS), ..Options::default() };
    let pool = ReceivePool::new(64 << 20).unwrap();
    (TcpQueuePair::new(Channel::plain(a), Class::Bulk, &LIMITS, &pool, &options).unwrap(), b)
}

/// Makes the kernel drop every later packet for this socket without an answer, as if its host were gone.
fn vanish(peer: &TcpStream) {
    // BPF_RET | BPF_K of linux/bpf_common.h, which keeps no byte.
    let mut filter = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    setsockopt(peer, kernel::AttachFilter, &program).unwrap();
}

fn info(qp: &TcpQueuePair) -> ConnectionInfo {
    getsockopt(qp, TcpInfo).unwrap()
}

/// Posts until the socket is full. Returns the number of messages.
fn fill(qp: &mut TcpQueuePair) -> u16 {
    let extent = compose(qp, 0, &pattern(4 << 20, 3));
    let mut posted = 0;
    while !qp.wants_write() {
        post(qp, posted, Gather::Ring(extent)).unwrap();
        qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
        posted += 1;
    }
    posted
}

/// Runs one round of an engine that sleeps, for at most 10 ms.
fn round(qp: &mut TcpQueuePair) -> Result<Option<Received<Lease>>, FabricError> {
    qp.arm(Armed::All)?;
    let flags = if qp.wants_write() { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
    poll(&mut [PollFd::new(qp.as_fd(), flags)], PollTimeout::from(10u8)).unwrap();
    while qp.poll_send().is_some() {}
    // The first poll after `arm` skips the socket.
    poll_by_value(qp).transpose().or_else(|| poll_by_value(qp).transpose()).transpose()
}

/// Runs rounds until the queue pair fails. Returns its failure.
fn failure(qp: &mut TcpQueuePair) -> FabricError {
    (0..ROUNDS).find_map(|_| round(qp).err()).expect("the loss of the peer is detected")
}

#[test]
fn a_peer_that_reads_nothing_for_long_is_not_lost() {
    let (mut qp, peer) = impatient();
    let posted = fill(&mut qp);
    // The kernel doubles the interval between two probes of a closed window, starting with 200 ms, so that the third
    // probe takes several times the time limit for an answer.
    let probed = (0..ROUNDS).any(|_| {
        assert!(round(&mut qp).expect("the peer is alive").is_none());
        info(&qp).backoff >= 3
    });
    assert!(probed && info(&qp).notsent_bytes != 0, "the window is closed and probed");
    let mut reader = over(peer, &LIMITS, &ReceivePool::new(64 << 20).unwrap());
    let mut received = 0;
    until(&mut qp, &mut reader, |qp, reader| {
        while qp.poll_send().is_some() {}
        received += u16::from(poll_by_value(reader).unwrap().is_some());
        (received == posted).then_some(())
    });
}

#[test]
fn a_peer_that_has_gone_is_lost() {
    let (mut qp, peer) = impatient();
    vanish(&peer);
    post(&mut qp, 0, Gather::Short(b"anybody?")).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert_ne!(info(&qp).unacked, 0, "the data is not acknowledged");
    assert_eq!(failure(&mut qp), FabricError::Lost);
}

#[test]
fn a_peer_that_has_gone_with_its_window_closed_is_lost() {
    let (mut qp, peer) = impatient();
    fill(&mut qp);
    vanish(&peer);
    let mut unanswered = 0;
    let error = (0..ROUNDS).find_map(|_| {
        unanswered = unanswered.max(info(&qp).probes);
        round(&mut qp).err()
    });
    assert_eq!(error, Some(FabricError::Lost));
    assert_ne!(unanswered, 0, "the closed window was probed");
}

#[test]
fn a_poller_that_never_sleeps_notices_a_peer_that_has_gone() {
    let (mut qp, peer) = impatient();
    vanish(&peer);
    post(&mut qp, 0, Gather::Short(b"anybody?")).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let error = (0..50_000_000).find_map(|_| poll_by_value(&mut qp).err());
    assert_eq!(error, Some(FabricError::Lost));
}

#[test]
fn a_quiet_connection_is_not_lost() {
    let (mut qp, _peer) = impatient();
    post(&mut qp, 0, Gather::Short(b"hello")).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let quiet = (0..ROUNDS).any(|_| {
        assert!(round(&mut qp).expect("the peer is alive").is_none());
        u64::from(info(&qp).last_ack_recv) > 2 * ANSWER_MS
    });
    assert!(quiet, "nothing has arrived for longer than the time limit");
    // Unanswered for a moment, after a long time without any answer.
    post(&mut qp, 1, Gather::Short(b"hello again")).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    assert!(round(&mut qp).expect("the peer is alive").is_none());
}
