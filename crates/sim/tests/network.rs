//! The network behaves as its options state, and each fault as its name states.

use pronto_core::Nanos;
use pronto_core::fabric::{
    Arrived, ConnectionLimits, DoorbellEvent, FabricError, Gather, Operation, PeerFault, QueuePair, SendWork,
    Signal, Status, WrId, poll_by_value,
};
use pronto_sim::{DialError, Fault, Random, SimNode, SimOptions, SimQueuePair, SimWorld, Span};
use pronto_wire::RawHeader;

const LIMITS: ConnectionLimits = ConnectionLimits {
    send_depth: 32,
    receive_depth: 32,
    max_send_payload: 4096,
    max_receive_payload: 4096,
    send_memory: 1 << 16,
};

fn world(seed: u64, options: SimOptions) -> (SimWorld, SimNode, SimNode) {
    let world = SimWorld::new(seed, options);
    let (a, b) = (world.add_node(), world.add_node());
    (world, a, b)
}

fn send(qp: &mut SimQueuePair, number: u8) {
    let operation = Operation::Send { header: &RawHeader::default(), payload: Gather::Short(&[number]) };
    let signal = Signal::Signalled(WrId { slot: number.into(), generation: 0 });
    qp.post(SendWork { signal, operation }).expect("alive, and not full");
    qp.ring_doorbell(DoorbellEvent::Solicited).expect("alive");
}

/// Returns the numbers that have arrived.
fn take(qp: &mut SimQueuePair) -> Vec<u8> {
    let mut numbers = Vec::new();
    while let Ok(Some(message)) = poll_by_value(qp) {
        let Arrived::Inline(payload) = message.payload else { panic!("posted inline") };
        numbers.push(payload.as_slice()[0]);
    }
    numbers
}

fn run(world: &SimWorld, span: Nanos) {
    world.run_until(world.now() + span);
}

/// Returns the trace hash of a random hour of a busy network with faults.
fn hash(seed: u64) -> u64 {
    let (world, a, b) = world(
        seed,
        SimOptions { spike_one_in: 20, spike: Span::micros(100, 1_000), ..SimOptions::like_tcp() },
    );
    let mut random = Random::new(3);
    let mut pairs: Vec<_> = (0..4).map(|_| world.connect(a, b, LIMITS)).collect();
    world.schedule(Nanos::from_millis(3), Fault::Partition(a, b));
    world.schedule(Nanos::from_millis(6), Fault::Heal(a, b));
    for round in 0..=255_u8 {
        let which = usize::try_from(random.below(4)).expect("below four");
        send(&mut pairs[which].0, round);
        run(&world, Nanos(random.below(100_000)));
        for (one, other) in &mut pairs {
            take(other);
            while one.poll_send().is_some() {}
        }
    }
    assert!(world.fired().spikes > 0 && world.fired().stalled_frames > 0);
    world.trace().hash()
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn connections_overtake_each_other_but_messages_of_one_do_not() {
    let options = SimOptions { spike_one_in: 4, spike: Span::millis(1, 2), ..SimOptions::like_tcp() };
    let (world, a, b) = world(1, options);
    let mut pairs: Vec<_> = (0..8).map(|_| world.connect(a, b, LIMITS)).collect();
    for number in 0..20 {
        for (from, _) in &mut pairs {
            send(from, number);
        }
    }
    let mut seen = vec![0; 8];
    let mut overtaken = false;
    while world.step() {
        for (index, (_, to)) in pairs.iter_mut().enumerate() {
            for number in take(to) {
                assert_eq!(number, seen[index], "order within connection {index}");
                seen[index] += 1;
            }
        }
        overtaken |= seen[0] > seen[7] + 3 || seen[7] > seen[0] + 3;
    }
    assert_eq!(seen, [20; 8]);
    assert!(overtaken, "no connection ever overtook another");
}

#[test]
fn a_partition_holds_frames_back_and_healing_lets_them_go_in_order() {
    let (world, a, b) = world(1, SimOptions::like_tcp());
    let (mut one, mut other) = world.connect(a, b, LIMITS);
    world.inflict(Fault::BlockOneWay { from: a, to: b });
    for number in 0..5 {
        send(&mut one, number);
        send(&mut other, number);
    }
    run(&world, Nanos::from_millis(200));
    assert_eq!(take(&mut other), []);
    assert_eq!(take(&mut one), [0, 1, 2, 3, 4], "the other direction is open");
    assert_eq!(world.fired().stalled_frames, 5);
    world.inflict(Fault::Heal(a, b));
    send(&mut one, 5);
    run(&world, Nanos::from_millis(200));
    assert_eq!(take(&mut other), [0, 1, 2, 3, 4, 5]);
    assert_eq!((world.fired().blocks, world.fired().heals, world.fired().given_up), (1, 1, 0));
}

#[test]
fn a_long_partition_ends_the_senders_connection_and_the_receivers_after_healing() {
    let (world, a, b) = world(1, SimOptions::like_verbs());
    let (mut one, mut other) = world.connect(a, b, LIMITS);
    world.inflict(Fault::Partition(a, b));
    send(&mut one, 1);
    run(&world, Nanos::from_secs(10));
    assert_eq!(one.poll_send().map(|completion| completion.status), Some(Status::Flushed));
    assert!(matches!(poll_by_value(&mut one), Err(FabricError::Lost)));
    assert!(matches!(poll_by_value(&mut other), Ok(None)), "an end that does not send does not notice");
    assert_eq!(world.fired().given_up, 1);
    world.inflict(Fault::Heal(a, b));
    run(&world, Nanos::from_millis(10));
    assert!(matches!(poll_by_value(&mut other), Err(FabricError::Lost)));
}

#[test]
fn a_dead_process_is_noticed_and_a_dead_machine_only_by_a_sender() {
    for silent in [false, true] {
        let (world, a, b) = world(1, SimOptions::like_verbs());
        let (mut one, _other) = world.connect(a, b, LIMITS);
        world.inflict(if silent { Fault::CrashMachine(b) } else { Fault::CrashProcess(b) });
        assert!(!world.is_alive(b));
        run(&world, Nanos::from_secs(10));
        assert_eq!(poll_by_value(&mut one).is_ok(), silent);
        if silent {
            send(&mut one, 1);
            run(&world, Nanos::from_secs(10));
            assert!(poll_by_value(&mut one).is_err());
        }
        world.inflict(Fault::Restart(b));
        assert_eq!((world.is_alive(b), world.incarnation(b)), (true, 2));
        assert_eq!((world.fired().crashes, world.fired().restarts), (1, 1));
    }
}

#[test]
fn messages_beyond_the_depth_are_counted_as_violations() {
    let (world, a, b) = world(1, SimOptions::like_tcp());
    let (mut one, mut other) = world.connect(a, b, LIMITS);
    for number in 0..33 {
        send(&mut one, number);
        run(&world, Nanos::from_millis(100));
    }
    assert_eq!(world.overruns(), 1);
    assert_eq!(take(&mut other).len(), 32, "messages with a receive are still delivered");
    assert!(matches!(poll_by_value(&mut other), Err(FabricError::Peer(PeerFault::Overrun))));
}

#[test]
fn dialling_connects_both_or_fails_in_time() {
    let (world, a, b) = world(1, SimOptions::like_tcp());
    let accept = || world.poll_incoming(b).map(|incoming| world.accept(incoming.id, vec![8], &[LIMITS; 2]));
    world.dial(a, b, vec![7]);
    run(&world, Nanos::from_millis(1));
    let mut theirs = accept().expect("the hello has come").expect("the other side waits");
    run(&world, Nanos::from_millis(1));
    let (response, mut ours) = world.poll_dialled(a).unwrap().outcome.unwrap();
    assert_eq!((response, ours.len(), theirs.len()), (vec![8], 2, 2));
    send(&mut ours[1], 9);
    run(&world, Nanos::from_millis(100));
    assert_eq!((take(&mut theirs[0]), take(&mut theirs[1])), (vec![], vec![9]));

    world.dial(a, b, vec![7]);
    run(&world, Nanos::from_millis(1));
    let incoming = world.poll_incoming(b).unwrap();
    assert_eq!((incoming.from, &incoming.hello[..]), (a, &[7][..]));
    world.refuse(incoming.id, vec![1, 2]);
    run(&world, Nanos::from_millis(1));
    assert_eq!(world.poll_dialled(a).unwrap().outcome.unwrap_err(), DialError::Refused(vec![1, 2]));

    world.inflict(Fault::CrashProcess(b));
    world.dial(a, b, vec![7]);
    run(&world, Nanos::from_millis(1));
    let refused = world.poll_dialled(a).expect("a living machine refuses immediately").outcome;
    assert_eq!(refused.unwrap_err(), DialError::Unreachable);
}

#[test]
fn a_lost_response_leaves_the_accepting_side_with_unconnected_ends() {
    let (world, a, b) = world(1, SimOptions::like_tcp());
    world.dial(a, b, vec![7]);
    run(&world, Nanos::from_millis(1));
    world.inflict(Fault::BlockOneWay { from: b, to: a });
    let incoming = world.poll_incoming(b).unwrap();
    let mut theirs = world.accept(incoming.id, vec![8], &[LIMITS]).unwrap();
    run(&world, Nanos::from_millis(100));
    assert!(world.poll_dialled(a).is_none(), "the dialler must wait for its timeout");
    assert!(poll_by_value(&mut theirs[0]).is_ok());
    run(&world, Nanos::from_secs(2));
    assert_eq!(world.poll_dialled(a).unwrap().outcome.unwrap_err(), DialError::Unreachable);
    assert!(matches!(poll_by_value(&mut theirs[0]), Err(FabricError::Lost)));
}
