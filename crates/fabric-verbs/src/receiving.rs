//! Receiving: completions of receives become messages, in order; payloads in the senders' memory are read.

use pronto_core::fabric::{
    Arrived, DoorbellEvent, FabricError, InlineMessage, MessageSlot, PeerFault, PollOutcome, Received,
    SHORT_PAYLOAD,
};
use pronto_wire::InlinePayload;

use crate::frame::{Arrival, Kind, TAKEN_LEN, decode, word};
use crate::inbox::{Fetch, Item, Progress};
use crate::lease::Lease;
use crate::queue_pair::{LAST_POLLS_FOR_ACCESS, VerbsQueuePair};
use crate::sending::{Entry, REMOTE_ACCESS};
use crate::sys::{SendRequest, Verb};

/// `ibv_wc_status` of a receive that the end of its queue pair flushed.
const FLUSHED: u32 = 5;

/// Result of one poll of the receive completions.
enum Completed {
    /// Nothing.
    Nothing,
    /// A message, which was added to the inbox.
    Message,
    /// An inline message while the inbox is empty.
    Inline(InlineMessage),
    /// A message between the two providers.
    Other,
}

impl VerbsQueuePair {
    /// Returns the next message: from the inbox, then from the receive completions, as far as they are needed.
    pub(crate) fn receive(&mut self, slot: MessageSlot<'_>) -> Result<PollOutcome<Lease>, FabricError> {
        let MessageSlot { inline, short } = slot;
        loop {
            if let Some(message) = self.inbox.pop() {
                return Ok(fill(MessageSlot { inline, short }, message));
            }
            match self.process_next() {
                Ok(Completed::Inline(message)) => {
                    *inline = message;
                    return Ok(PollOutcome::Inline);
                }
                // While the first payload is being read, takes all available completions, so that payloads are read
                // concurrently.
                Ok(Completed::Message | Completed::Other) => {}
                Ok(Completed::Nothing) => break,
                Err(error) => {
                    self.fail(error);
                    return Err(error);
                }
            }
        }
        if !self.inbox.is_empty() {
            self.fetch();
            self.reap();
        }
        if !self.owed.is_empty() || !self.closing.is_empty() {
            self.pay();
        }
        self.usable()?;
        if let Some(message) = self.inbox.pop() {
            return Ok(fill(MessageSlot { inline, short }, message));
        }
        if self.alive.is_lost() {
            return self.take_leave();
        }
        // Idle: replenishes the pool for later messages, also for threads that never sleep.
        if self.shared.pool.is_low() {
            self.shared.pool.replenish();
        }
        Ok(PollOutcome::Nothing)
    }

    /// Handles the end of the connection by the peer. Outstanding requests get some more polls: the device may still
    /// report, for example, that an access was refused.
    #[cold]
    fn take_leave(&mut self) -> Result<PollOutcome<Lease>, FabricError> {
        self.reap();
        self.usable()?;
        self.last_polls = self.last_polls.saturating_sub(1);
        let asks = self.entries.iter().any(|entry| matches!(entry, Entry::Access { .. }));
        let least = if asks { 0 } else { LAST_POLLS_FOR_ACCESS };
        if self.last_polls > least && !self.entries.is_empty() {
            if asks {
                // The device may be a kernel thread that needs this CPU.
                std::thread::yield_now();
            }
            return Ok(PollOutcome::Nothing);
        }
        self.fail(FabricError::Lost);
        Err(FabricError::Lost)
    }

    /// Processes one receive completion.
    #[inline]
    fn process_next(&mut self) -> Result<Completed, FabricError> {
        let polled = self.receives.poll().map_err(|errno| FabricError::System { errno: errno as i32 })?;
        let Some(completed) = polled else { return Ok(Completed::Nothing) };
        let Some(buffer) = self.buffers.completed(completed.id, completed.len) else {
            return Err(FabricError::WorkFailed { status: completed.status });
        };
        match completed.status {
            0 => {}
            FLUSHED => return Err(FabricError::Lost),
            // A refused write with an immediate has taken its receive already.
            REMOTE_ACCESS => return Err(PeerFault::Access.into()),
            status => return Err(FabricError::WorkFailed { status }),
        }
        if completed.is_immediate {
            // No correct peer sends one. The buffer still holds an earlier message, which must not be delivered again.
            return Err(PeerFault::Unasked.into());
        }
        match decode(buffer.bytes(), self.max_receive)? {
            Arrival::Message { header, payload } => {
                let small = InlinePayload::new(payload);
                if let Some(payload) = small
                    && self.inbox.is_empty()
                {
                    return Ok(Completed::Inline(InlineMessage { header, payload }));
                }
                let used = self.begin_use()?;
                self.inbox.push(match small {
                    Some(payload) => Item::Inline(header, payload, used),
                    None => Item::Whole(header, Lease::received(buffer, used)),
                });
                Ok(Completed::Message)
            }
            Arrival::Rendezvous { header, waiting } => {
                let used = self.begin_use()?;
                let progress = Progress::Wanted;
                self.inbox.push(Item::Elsewhere(Fetch { header, waiting, used, progress }));
                Ok(Completed::Message)
            }
            Arrival::Taken { window } => {
                // The window is closed before the sender may reuse its buffer.
                let key = self.windows.begin_closing(window).ok_or(PeerFault::Unasked)?;
                self.closing.push_back((key, window));
                Ok(Completed::Other)
            }
        }
    }

    fn begin_use(&self) -> Result<crate::lease::Use, FabricError> {
        let (in_use, used) = self.in_use.begin();
        // Allows twice the window: a lease that another thread drops is counted a moment longer.
        if in_use > 2 * self.capabilities.receive_depth {
            return Err(PeerFault::Overrun.into());
        }
        Ok(used)
    }

    /// Starts to read waiting payloads, as far as there are buffers and room.
    fn fetch(&mut self) {
        let mut pushed = false;
        while self.queue.room() > 1 {
            let Some((number, fetch)) = self.inbox.first_wanted() else { break };
            let len = fetch.waiting.len.get();
            let Some(buffer) = self.shared.pool.take(len as usize, &self.fetch_waiter) else { break };
            let (memory, offset) = buffer.registered();
            let gathered = Some((memory.local(offset), len));
            let verb = Verb::Read(0, fetch.waiting.key.get());
            fetch.progress = Progress::Underway(buffer);
            self.push(SendRequest { verb, line: 0, gathered, signalled: true }, Entry::Fetch(number));
            pushed = true;
        }
        if pushed {
            self.post(DoorbellEvent::Solicited);
        }
    }

    /// Notes that a payload was read, which must be reported to its sender.
    pub(crate) fn fetched(&mut self, number: u64) {
        if let Some(waiting) = self.inbox.arrived(number) {
            let window = u16::try_from(waiting.window.get()).unwrap_or(u16::MAX);
            self.owed.push_back(window);
        }
    }

    /// Reports read payloads to their senders, and closes windows onto payloads that the peer has read.
    pub(crate) fn pay(&mut self) {
        let mut pushed = false;
        while self.queue.room() > 0
            && let Some(window) = self.owed.pop_front()
        {
            self.queue.next_line()[..TAKEN_LEN].copy_from_slice(&word(Kind::Taken, window).to_le_bytes());
            let line = u32::try_from(TAKEN_LEN).unwrap_or(0);
            self.push(SendRequest { verb: Verb::Send, line, gathered: None, signalled: false }, Entry::Part);
            pushed = true;
        }
        while self.queue.room() > 0
            && let Some((key, window)) = self.closing.pop_front()
        {
            let verb = Verb::Invalidate(key);
            self.push(SendRequest { verb, line: 0, gathered: None, signalled: true }, Entry::Closing(window));
            pushed = true;
        }
        if pushed {
            self.post(DoorbellEvent::Solicited);
        }
    }
}

/// Delivers a message: inline and short ones in the slot.
fn fill(slot: MessageSlot<'_>, message: Received<Lease>) -> PollOutcome<Lease> {
    let Received { header, payload } = message;
    match payload {
        Arrived::Inline(payload) => {
            *slot.inline = InlineMessage { header, payload };
            PollOutcome::Inline
        }
        Arrived::Buffer(lease) if lease.bytes().len() <= SHORT_PAYLOAD => {
            let bytes = lease.bytes();
            let len = u8::try_from(bytes.len()).expect("a short payload fits");
            slot.short.put(header, len, |into| into.copy_from_slice(bytes));
            PollOutcome::Short
        }
        payload @ Arrived::Buffer(_) => PollOutcome::Leased(Received { header, payload }),
    }
}
