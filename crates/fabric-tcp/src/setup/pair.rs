//! Both ends of a link within one process.

use core::time::Duration;
use std::sync::{Arc, mpsc};
use std::thread;

use pronto_core::Class;
use pronto_core::fabric::ConnectionLimits;

use super::{Handshake, Link, Listener, Options};
use crate::error::SetupError;
use crate::pool::ReceivePool;

/// Longer than a handshake within one process takes on the busiest host.
const PATIENCE: Duration = Duration::from_secs(20);

impl Link {
    /// Returns two ends of one link over the loopback interface, within this process. `limits` are those of the first
    /// end, for control and bulk.
    ///
    /// # Errors
    /// Fails if the system has no sockets or no memory left.
    ///
    /// # Panics
    /// Never: its threads do not panic.
    pub fn pair(
        limits: [ConnectionLimits; 2],
        pools: &[Arc<ReceivePool>; 2],
    ) -> Result<(Self, Self), SetupError> {
        let listener = Listener::bind("127.0.0.1:0", Options::default())?;
        let address = listener.local_addr()?;
        // The sides of a handshake wait for each other, and for the listener, which accepts both connections of a link.
        thread::scope(|threads| {
            let (accepted_by, accepted) = mpsc::sync_channel(Class::ALL.len());
            let listening = threads.spawn({
                let listener = &listener;
                move || -> Result<(), SetupError> {
                    for _ in Class::ALL {
                        if let Some(handshake) = listener.accept()?.begin(PATIENCE)? {
                            // The receiver is gone only if it has failed itself.
                            let _failed = accepted_by.send(handshake);
                        }
                    }
                    Ok(())
                }
            });
            let far = threads.spawn(move || {
                let handshake = accepted.recv().map_err(|_| SetupError::Lost)?;
                handshake.establish(limits.map(ConnectionLimits::mirrored), &pools[1])
            });
            let near = Handshake::dial(address, PATIENCE, Options::default())
                .and_then(|handshake| handshake.establish(limits, &pools[0]));
            if near.is_err() {
                listener.close();
            }
            let far = far.join().expect("the thread does not panic");
            listening.join().expect("the thread does not panic")?;
            Ok((near?, far?))
        })
    }
}
