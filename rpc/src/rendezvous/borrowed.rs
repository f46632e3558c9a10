//! Sending bytes that are borrowed for the duration of one call.

use core::time::Duration;

use pronto_core::Nanos;
use pronto_core::fabric::region::with_borrowed;

use super::error::TransferError;
use super::sending::Pieces;
use crate::error::CallRejection;
use crate::host::Host;
use crate::peer::Peer;

/// Interval at which a thread checks whether the node has returned borrowed bytes.
const RETURN_CHECK_INTERVAL: Nanos = Nanos::from_micros(50);

impl<H: Host> Peer<H> {
    /// Sends borrowed bytes, anywhere in the program's memory, into the buffer of a receive with this tag, like [`Peer::send`]. Returns after
    /// the end of the transfer, and when this node does not access the bytes any more. If the send is given up while the peer reads them, the
    /// grant ends immediately; over RDMA this may end the link, and the session resumes on another one. Over shared memory a read that the peer
    /// has begun may take some microseconds longer: it is not delivered as a message.
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn send_bytes(&self, tag: u64, bytes: &[u8], timeout: Duration) -> Result<(), TransferError> {
        let host = self.host();
        let pause = || {
            self.session().move_transfers_now(&**host);
            host.back_off(RETURN_CHECK_INTERVAL);
        };
        with_borrowed(bytes, pause, |memory| {
            self.send_within(timeout, |left| {
                let mut pieces = Pieces::default();
                pieces.add(memory.region(), 0..memory.len() as u64).map_err(CallRejection::Here)?;
                self.start_sending(tag, pieces, left, true)
            })
        })
    }
}
