//! Fuzzing support: feeds a stream to a connection without a socket.

use std::sync::Arc;

use pronto_core::fabric::{FabricError, HeapMemory, Region, Rights, WrId};

use crate::inbound::Inbound;
use crate::one_sided::{OneSided, Open};
use crate::outbound::Outbound;
use crate::pool::{Account, ReceivePool};

/// Maximum payload of an accepted message, bytes.
const MAX_PAYLOAD: usize = 1000;
/// Length of each region, bytes.
const REGION: usize = 128;

/// Result of feeding a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Header and payload of each message.
    pub messages: Vec<(Vec<u8>, Vec<u8>)>,
    /// The granted region, and the target of this side's read.
    pub regions: [Vec<u8>; 2],
    /// Number of completed one-sided operations of this side.
    pub completions: usize,
    /// Error that ended the connection.
    pub fault: Option<FabricError>,
}

/// Feeds a stream to a fresh connection, at most `piece` bytes at a time. Key 1 is granted, and this side has an open
/// read of 100 bytes and an open atomic.
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
                    let payload = message.payload.as_private().expect("TCP payloads are private").to_vec();
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
