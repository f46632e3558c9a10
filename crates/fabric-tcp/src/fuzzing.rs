//! For the fuzzer alone: what a connection makes of a stream, without a socket.

use std::sync::Arc;

use pronto_core::fabric::{FabricError, HeapMemory, Region, Rights, WrId};

use crate::inbound::Inbound;
use crate::one_sided::{OneSided, Open};
use crate::outbound::Outbound;
use crate::pool::{Account, ReceivePool};

/// Longest payload of a message that is taken, bytes.
const MAX_PAYLOAD: usize = 1000;
/// Length of each region, bytes.
const REGION: usize = 128;

/// What came of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Messages, with their headers.
    pub messages: Vec<(Vec<u8>, Vec<u8>)>,
    /// The granted region, and the one that a read of ours goes to.
    pub regions: [Vec<u8>; 2],
    /// How many one-sided operations of ours completed.
    pub completions: usize,
    /// Why the connection failed, if it did.
    pub fault: Option<FabricError>,
}

/// Feeds a stream to a fresh connection, at most `piece` bytes at a time. Key 1 is granted; a read of 100 bytes and an
/// atomic are open.
pub fn outcome(stream: &[u8], piece: usize) -> Outcome {
    let pool = ReceivePool::new(1 << 20).expect("an event descriptor");
    let mut inbound = Inbound::new(Account::new(&pool, 1), MAX_PAYLOAD);
    let mut outbound = Outbound::new(16);
    let mut one_sided = OneSided::default();
    let [target, local] = [(); 2].map(|()| Region::new(Arc::new(HeapMemory::new(REGION))));
    one_sided.grants.insert(1, &target, 0..REGION as u64, Rights::ALL);
    one_sided
        .open(WrId { slot: 0, generation: 0 }, Open::Read { region: local.clone(), at: 0, len: 100, got: 0 });
    one_sided.open(WrId { slot: 1, generation: 0 }, Open::Atomic);
    let mut messages = Vec::new();
    let mut fault = None;
    'stream: for bytes in stream.chunks(piece.clamp(1, 1 << 15)) {
        inbound.feed(bytes);
        loop {
            match inbound.advance(&mut one_sided, &mut outbound) {
                Ok(Some(message)) => {
                    let payload = message.payload.as_private().expect("no peer can write to it").to_vec();
                    messages.push((message.header.as_array().to_vec(), payload));
                }
                Ok(None) => break,
                Err(error) => {
                    fault = Some(error);
                    break 'stream;
                }
            }
        }
    }
    let regions = [target, local].map(|region| {
        let mut bytes = vec![0; REGION];
        region.read(0, &mut bytes).expect("the whole region");
        bytes
    });
    let completions = core::iter::from_fn(|| one_sided.completed()).count();
    Outcome { messages, regions, completions, fault }
}
