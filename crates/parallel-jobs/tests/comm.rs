//! Messages and collectives over Pronto, between ranks in threads of this process.

use core::time::Duration;
use std::thread;

use pronto::WaitPolicy;
use pronto_parallel_jobs::comm::{
    Comm, CommError, Incoming, Outgoing, OverPronto, Rank, Reduction, Settings, Tag,
};

const TAG: Tag = Tag(20);

/// Runs `body` as each of several ranks. Returns the results by rank.
fn as_ranks<T: Send>(name: &str, ranks: usize, body: impl Fn(&mut OverPronto) -> T + Sync) -> Vec<T> {
    let address = |rank| format!("shm:@jobs-comm-{name}-{}-{rank}", std::process::id());
    let settings = Settings { wait: WaitPolicy::Block, ..Settings::new((0..ranks).map(address).collect()) };
    let (settings, body) = (&settings, &body);
    thread::scope(|scope| {
        let start = |rank| {
            scope.spawn(move || body(&mut OverPronto::start(Rank(rank), settings).expect("it starts")))
        };
        let ranks: Vec<_> = (0..ranks).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn reductions_combine_all_ranks() {
    for (ranks, count, sum) in [(1, 0, 0.5), (2, 1, 1.0), (3, 3, 1.5), (4, 6, 2.0), (7, 21, 3.5)] {
        let results = reductions(ranks);
        assert_eq!(results, vec![([u32::try_from(ranks).unwrap(), count], [sum], [-1.0]); ranks]);
    }
}

/// Returns the results of three reductions, by rank: the numbers of ranks and their sum, a sum and a maximum of floating-point numbers.
fn reductions(ranks: usize) -> Vec<([u32; 2], [f64; 1], [f64; 1])> {
    as_ranks(&format!("reduce-{ranks}"), ranks, |comm| {
        let rank = comm.rank().0;
        let (mut counts, mut sums, mut most) =
            ([1, u32::try_from(rank).expect("few ranks")], [0.5], [-1.0 - rank as f64]);
        comm.allreduce(Reduction::SumU32(&mut counts)).expect("no rank ends");
        comm.allreduce(Reduction::SumF64(&mut sums)).expect("no rank ends");
        comm.allreduce(Reduction::MaxF64(&mut most)).expect("no rank ends");
        comm.close().expect("all ranks close");
        (counts, sums, most)
    })
}

/// Part that rank `from` sends to rank `to`, in a test with different lengths, some of them 0 and some longer than an eager message.
fn part(from: usize, to: usize) -> Vec<u8> {
    let length = [0, 1, 100, 300_000][(from * 3 + to) % 4];
    vec![u8::try_from(16 * from + to).expect("few ranks"); length]
}

#[test]
fn all_to_all_delivers_parts_of_any_length() {
    for ranks in [4, 5] {
        all_to_all(ranks);
    }
}

fn all_to_all(ranks: usize) {
    as_ranks(&format!("all-{ranks}"), ranks, |comm| {
        let me = comm.rank().0;
        let (sent, expected): (Vec<_>, Vec<_>) =
            (0..ranks).map(|other| (part(me, other), part(other, me))).unzip();
        let lengths = |parts: &[Vec<u8>]| parts.iter().map(Vec::len).collect::<Vec<_>>();
        let mut received = vec![0; expected.iter().map(Vec::len).sum()];
        let parts = (lengths(&sent), lengths(&expected));
        comm.all_to_all(&sent.concat(), &mut received, (&parts.0, &parts.1)).expect("no rank ends");
        assert!(received == expected.concat(), "rank {me}");
        comm.close().expect("no rank ends");
    });
}

#[test]
fn long_messages_cross() {
    as_ranks("cross", 2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let own = vec![u8::try_from(comm.rank().0).unwrap() + 1; 9 << 20];
        let mut theirs = vec![0; 9 << 20];
        let send = [Outgoing { to: peer, tag: TAG, bytes: &own }];
        comm.exchange(&send, &mut [Incoming { from: peer, tag: TAG, bytes: &mut theirs }]).unwrap();
        assert!(theirs.iter().all(|byte| usize::from(*byte) == peer.0 + 1));
        comm.close().unwrap();
    });
}

#[test]
fn a_sender_that_is_far_ahead_waits_and_its_messages_keep_their_order() {
    const MESSAGES: u32 = 200;
    let sent = as_ranks("ahead", 2, |comm| {
        for number in 0..MESSAGES {
            if comm.rank() == Rank(0) {
                comm.send(Rank(1), TAG, &number.to_le_bytes()).unwrap();
            } else {
                let mut bytes = [0; 4];
                comm.receive(Rank(0), TAG, &mut bytes).unwrap();
                assert_eq!(u32::from_le_bytes(bytes), number);
            }
        }
        let sent = comm.traffic();
        comm.close().unwrap();
        (sent.messages, sent.bytes)
    });
    assert_eq!(sent, [(200, 800), (0, 0)]);
}

#[test]
fn messages_match_receives_of_their_tag() {
    as_ranks("tags", 2, |comm| {
        if comm.rank() == Rank(0) {
            comm.send(Rank(1), Tag(1), b"one").unwrap();
            comm.send(Rank(1), Tag(2), b"two").unwrap();
        } else {
            let mut bytes = [0; 3];
            comm.receive(Rank(0), Tag(2), &mut bytes).unwrap();
            assert_eq!(&bytes, b"two");
            comm.receive(Rank(0), Tag(1), &mut bytes).unwrap();
            assert_eq!(&bytes, b"one");
        }
        comm.close().unwrap();
    });
}

#[test]
fn a_message_of_another_length_is_an_error() {
    for (sent, room) in [(8, 16), (16, 8)] {
        let errors = as_ranks("length", 2, |comm| {
            if comm.rank() == Rank(0) {
                comm.send(Rank(1), TAG, &vec![0; sent]).unwrap();
                // Stays until the other rank has seen the message.
                return comm.receive(Rank(1), TAG, &mut []).map_err(|error| error.to_string());
            }
            let result = comm.receive(Rank(0), TAG, &mut vec![0; room]);
            comm.send(Rank(0), TAG, &[]).unwrap();
            result.map_err(|error| error.to_string())
        });
        let text = errors[1].clone().unwrap_err();
        let expected = format!("a message from rank 0 has {sent} bytes instead of {room}");
        assert!(text.starts_with(&expected), "{text}");
    }
}

#[test]
fn a_rank_that_leaves_fails_the_receives_of_others() {
    let results = as_ranks("leaves", 2, |comm| {
        if comm.rank() == Rank(0) {
            // Stays until the other rank has started.
            return comm.receive(Rank(1), TAG, &mut []);
        }
        comm.send(Rank(0), TAG, &[]).unwrap();
        comm.receive(Rank(0), TAG, &mut [0])
    });
    assert!(matches!(&results[1], Err(CommError::Ended(Rank(0)))), "{results:?}");
}

#[test]
fn a_rank_that_does_not_start_is_named() {
    let addresses = [0, 1].map(|rank| format!("shm:@jobs-comm-alone-{}-{rank}", std::process::id()));
    let settings = Settings { start_within: Duration::from_millis(50), ..Settings::new(addresses.into()) };
    let error = OverPronto::start(Rank(0), &settings).unwrap_err();
    assert!(matches!(error, CommError::NotStarted { rank: Rank(1), .. }), "{error}");
    let error = OverPronto::start(Rank(0), &Settings::new(vec!["shm:@a".into(); 9])).unwrap_err();
    assert!(matches!(error, CommError::Size(9)), "{error}");
}
