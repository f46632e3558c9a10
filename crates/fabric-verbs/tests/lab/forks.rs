//! A process that forks while its memory is pinned. The kernel copies pinned pages for the child when it forks. If the
//! pages were shared until written to, the parent's next write would move it to a page that the device does not know.
#![expect(unsafe_code, reason = "fork is an unsafe function")]

use std::io::{PipeReader, Read as _, pipe};
use std::sync::Arc;
use std::thread;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use pronto_core::fabric::{
    DoorbellEvent, Gather, HeapMemory, Operation, QueuePair as _, Region, Rights, SendWork, Signal, Status,
    WrId, poll_by_value,
};
use pronto_fabric_verbs::VerbsQueuePair;
use pronto_wire::RawHeader;

use crate::grants::LIMITS;
use crate::pair::Devices;

const LEN: usize = 1 << 16;
/// Maximum number of polls for an operation.
const POLLS: u32 = 2_000_000;

fn region() -> Region {
    Region::new(Arc::new(HeapMemory::new(LEN)))
}

/// Carries out one request. Returns the payload that arrived, if any.
fn carried_out(a: &mut VerbsQueuePair, b: &mut VerbsQueuePair, operation: Operation<'_>) -> Option<Vec<u8>> {
    let is_message = matches!(operation, Operation::Send { .. });
    let signal = Signal::Signalled(WrId { slot: 1, generation: 1 });
    a.post(SendWork { signal, operation }).unwrap();
    a.ring_doorbell(DoorbellEvent::Solicited).unwrap();
    let (mut arrived, mut done) = (None, false);
    for _ in 0..POLLS {
        if let Some(message) = poll_by_value(b).unwrap() {
            let mut bytes = vec![0; message.payload.len()];
            message.payload.copy_to(0, &mut bytes).unwrap();
            arrived = Some(bytes);
        }
        assert!(poll_by_value(a).unwrap().is_none());
        if let Some(completion) = a.poll_send() {
            assert_eq!(completion.status, Status::Done(0));
            done = true;
        }
        if done && arrived.is_some() == is_message {
            return arrived;
        }
        thread::yield_now();
    }
    panic!("{operation:?}: arrived {}, done {done}", arrived.is_some());
}

/// Runs in the child: writes to memory that the parent has registered, and stays until the parent lets it go.
fn scribble(regions: [&Region; 3], mut until: PipeReader) -> ! {
    for region in regions {
        let _ours = region.write(0, &[0xcc; LEN]);
    }
    let _end = until.read(&mut [0]);
    // SAFETY: ends the process without running any code of the parent.
    unsafe { libc::_exit(0) }
}

#[test]
#[ignore = "runs in the lab: cargo xtask lab test"]
fn a_child_does_not_take_the_pages_of_the_device() {
    let [mut a, mut b] = Devices::open().link(LIMITS);
    let (a, b) = (&mut a.bulk, &mut b.bulk);
    let [source, granted, sink] = [region(), region(), region()];
    a.register(&source).unwrap();
    a.register(&sink).unwrap();
    b.register(&granted).unwrap();
    let remote = b.grant(&granted, 0..LEN as u64, Rights::READ_WRITE).unwrap().remote;
    let (until, stays) = pipe().unwrap();
    let kept = stays.try_clone().unwrap();
    // SAFETY: the child only writes to memory, reads from a pipe and ends: no lock, no allocation.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop((stays, kept));
            scribble([&source, &granted, &sink], until)
        }
        ForkResult::Parent { child } => child,
    };
    drop(until);
    let header = RawHeader::default();
    // While the child lives, so that shared pages would stay shared.
    for (round, len) in (1_u8..).zip([41_u32, 300, 2024, 2025, 60_000].repeat(3)) {
        let bytes = vec![round; LEN];
        source.write(0, &bytes).unwrap();
        let payload = Gather::Region { region: &source, offset: 0, len };
        let arrived = carried_out(a, b, Operation::Send { header: &header, payload });
        assert!(arrived.is_some_and(|arrived| arrived == bytes[..len as usize]), "a message of {len} bytes");
        carried_out(a, b, Operation::Write { local: &source, local_offset: 0, remote });
        let mut found = vec![0; LEN];
        granted.read(0, &mut found).unwrap();
        assert!(found == bytes, "wrong bytes written to the granted region");
        granted.write(0, &vec![!round; LEN]).unwrap();
        carried_out(a, b, Operation::Read { local: &sink, local_offset: 0, remote });
        sink.read(0, &mut found).unwrap();
        assert!(found == vec![!round; LEN], "wrong bytes read from the granted region");
    }
    drop((stays, kept));
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
}
