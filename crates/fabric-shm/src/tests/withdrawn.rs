//! Payloads whose sender closed the link: it may have reused their memory, so they must not be read any more.

use pronto_core::fabric::{
    Arrived, DoorbellEvent, Extent, FabricError, Gather, Operation, Payload, QueuePair, Region, SendWork,
    Signal, Withdrawn, WrId, poll_by_value,
};

use super::LIMITS;
use crate::queue_pair::ShmQueuePair;
use crate::region::ShmRegion;
use crate::setup::Link;

const LEN: usize = 8192;

/// Returns a region filled with `byte`.
fn region_of(byte: u8) -> Region {
    let region = ShmRegion::allocate(LEN).unwrap();
    region.write(0, &[byte; LEN]).unwrap();
    region
}

fn post(qp: &mut ShmQueuePair, region: &Region) {
    let payload = Gather::Region { region, offset: 0, len: u32::try_from(LEN).unwrap() };
    let operation = Operation::Send { header: &Default::default(), payload };
    let signal = Signal::Signalled(WrId { slot: 0, generation: 1 });
    qp.post(SendWork { signal, operation }).unwrap();
    qp.ring_doorbell(DoorbellEvent::Solicited).unwrap();
}

/// Closes the sender's end, which returns its region, and writes other bytes to the region.
fn close_and_reuse(qp: &mut ShmQueuePair, region: &Region) {
    qp.close();
    assert!(qp.poll_send().is_some(), "the send has ended");
    region.write(0, &[2; LEN]).unwrap();
}

#[test]
fn a_message_that_is_polled_after_its_sender_closed_is_not_delivered() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    let region = region_of(1);
    post(&mut a.bulk, &region);
    close_and_reuse(&mut a.bulk, &region);
    match poll_by_value(&mut b.bulk) {
        Err(error) => assert_eq!(error, FabricError::Lost),
        Ok(None) => panic!("the end of the link is not reported"),
        Ok(Some(message)) => {
            let Arrived::Buffer(_) = message.payload else { panic!("a long payload is not inline") };
            let mut byte = [0];
            message.payload.copy_to(LEN / 2, &mut byte).unwrap();
            panic!("a message with bytes that were never sent: {byte:?}");
        }
    }
}

#[test]
fn a_payload_that_is_read_after_its_sender_closed_is_not_valid() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    let region = region_of(1);
    post(&mut a.bulk, &region);
    let Arrived::Buffer(lease) = poll_by_value(&mut b.bulk).unwrap().unwrap().payload else {
        panic!("a long payload is not inline")
    };
    let mut bytes = [0; LEN];
    lease.copy_to(0, &mut bytes).unwrap();
    assert_eq!((lease.validate(), bytes), (Ok(()), [1; LEN]));
    close_and_reuse(&mut a.bulk, &region);
    lease.copy_to(0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; LEN], "the region was overwritten");
    assert_eq!(lease.validate(), Err(Withdrawn));
    lease.read_copy(&mut |_| panic!("an invalid copy was passed to the reader"));
}

/// A payload beyond the bound on leases is copied while it is polled.
#[test]
fn a_payload_that_would_be_copied_after_its_sender_closed_is_not_delivered() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    let region = region_of(1);
    let mut held = Vec::new();
    while b.bulk.counts().copied == 0 {
        post(&mut a.bulk, &region);
        held.push(poll_by_value(&mut b.bulk).unwrap().unwrap());
        assert!(held.len() < 1000, "leases are not bounded");
    }
    post(&mut a.bulk, &region);
    close_and_reuse(&mut a.bulk, &region);
    assert_eq!(poll_by_value(&mut b.bulk).unwrap_err(), FabricError::Lost);
    assert_eq!(b.bulk.counts().copied, 1);
    let private: Vec<_> = held.iter().filter_map(|message| message.payload.as_private()).collect();
    assert_eq!(private, [[1; LEN]], "earlier copies stay unchanged");
}

/// Send memory is not reused after the end, so that the last messages of a peer are delivered.
#[test]
fn a_message_in_send_memory_is_delivered_after_its_sender_closed() {
    let (mut a, mut b) = Link::pair([LIMITS; 2]).unwrap();
    a.bulk.prepare(0..LEN).unwrap();
    a.bulk.sending.memory.mapping().write(0, &[1; LEN]).unwrap();
    let payload = Gather::Ring(Extent { offset: 0, len: u32::try_from(LEN).unwrap() });
    let operation = Operation::Send { header: &Default::default(), payload };
    a.bulk.post(SendWork { signal: Signal::Unsignalled, operation }).unwrap();
    a.bulk.close();
    let message = poll_by_value(&mut b.bulk).unwrap().unwrap();
    let mut bytes = [0; LEN];
    message.payload.copy_to(0, &mut bytes).unwrap();
    assert_eq!((message.payload.validate(), bytes), (Ok(()), [1; LEN]));
}
