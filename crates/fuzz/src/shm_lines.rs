//! Everything that a peer over shared memory can write while this side receives: lines, slots, payloads, its other words, wake-ups and
//! announcements.

use pronto_core::fabric::{
    Armed, Arrived, Extent, FabricError, Gather, Operation, QueuePair as _, Received, SendWork, Signal, WrId,
    poll_by_value,
};
use pronto_fabric_shm::fuzzing::{Hostile, LIMITS, Passed};
use pronto_fabric_shm::{ShmLease, ShmQueuePair};
use pronto_wire::{HEADER_LEN, INLINE_PAYLOAD, RawHeader};

use crate::bytes::Bytes;

/// Length of a line, and of the slot next to it, bytes.
const LINE: usize = 64;
const SLOT: usize = 192;
/// Longest payload that continues in a slot.
const LONGEST_SHORT: usize = INLINE_PAYLOAD + SLOT;
/// Forms of lines whose payload is elsewhere: in send memory, and in a region.
const RING: u8 = 254;
const REGION: u8 = 255;
/// Payloads that this side holds at a time.
const HELD: usize = 12;
/// Most steps of an input: enough for several laps of four lines, each step with every kind of fault.
const STEPS: usize = 200;

/// Plays an input as the steps of a hostile peer and of this side. Checks that each poll returns the message that the peer wrote, as the
/// protocol defines it, or a fault exactly where the bytes break the protocol; that a fault is permanent; and that the peer cannot make
/// this side hold more memory than its bounds.
pub fn shm_lines(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let (link, hostile) = Hostile::meet();
    let mut game = Game::new(link.bulk, hostile);
    for _ in 0..STEPS {
        if bytes.is_empty() {
            break;
        }
        game.step(&mut bytes);
    }
    game.drain();
}

/// The two sides, and a model of what this side must see.
struct Game {
    victim: ShmQueuePair,
    hostile: Hostile,
    /// Contents of the peer's segment and send memory.
    segment: Vec<u8>,
    memory: Vec<u8>,
    /// The next line, and its lap.
    next: usize,
    lap: u32,
    /// The error that the connection ended with.
    failure: Option<FabricError>,
    /// Whether the connection may have failed outside of a poll, which the next poll reports.
    doubt: bool,
    held: Vec<Arrived<ShmLease>>,
    posted: u16,
}

/// The message that a line must become.
#[derive(Debug)]
enum Due {
    /// No line is due.
    Nothing,
    Message(Vec<u8>),
    /// A message in a region, which may be unknown.
    InRegion,
    Fault,
}

impl Game {
    fn new(victim: ShmQueuePair, hostile: Hostile) -> Self {
        Self {
            victim,
            hostile,
            segment: vec![0; Hostile::segment_len()],
            memory: vec![0; Hostile::memory_len()],
            next: 0,
            lap: 1,
            failure: None,
            doubt: false,
            held: Vec::new(),
            posted: 0,
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.below(14) {
            0 => self.line(self.next, self.lap, bytes.byte(), bytes),
            1 => {
                let (index, lap) = (bytes.below(Hostile::lines_and_tags().0), bytes.u32());
                self.line(index, lap, bytes.byte(), bytes);
            }
            2 | 3 => self.place(bytes),
            4 => {
                let at = Hostile::slot(bytes.below(Hostile::lines_and_tags().0));
                self.write_segment(at, bytes);
            }
            5 => {
                let at = usize::from(bytes.u16()) % self.segment.len();
                self.write_segment(at, bytes);
            }
            6 => {
                let at = usize::from(bytes.u16()) % self.memory.len();
                let len = bytes.byte().into();
                let bytes = bytes.up_to(len);
                let bytes = &bytes[..bytes.len().min(self.memory.len() - at)];
                self.memory[at..at + bytes.len()].copy_from_slice(bytes);
                self.hostile.write_memory(at, bytes);
            }
            7 => self.drain(),
            8 => self.post(bytes.u16()),
            9 => self.complete(),
            10 => self.arm(bytes.below(3)),
            11 => self.hostile.wake(usize::from(bytes.byte()) * 8),
            12 => self.announce(bytes),
            _ => self.rare(bytes.below(5)),
        }
    }

    /// The peer writes a line: its form and lap, and the words from the input.
    fn line(&mut self, index: usize, lap: u32, form: u8, bytes: &mut Bytes<'_>) {
        let mut line = [0; LINE];
        let len = bytes.below(LINE);
        let words = bytes.up_to(len);
        line[4..4 + words.len().min(LINE - 4)].copy_from_slice(&words[..words.len().min(LINE - 4)]);
        line[..4].copy_from_slice(&(lap << 8 | u32::from(form)).to_le_bytes());
        self.put(Hostile::line(index), &line);
    }

    /// The peer writes the due line, with a payload elsewhere.
    fn place(&mut self, bytes: &mut Bytes<'_>) {
        let form = if bytes.byte().is_multiple_of(4) { REGION } else { RING };
        // Mostly within the bounds, so that many are valid.
        let (offset, len) = (u64::from(bytes.u16()), u32::from(bytes.u16()) % 400);
        let (tag, token) = (bytes.u32() % 24, bytes.byte());
        let (slot, generation) = (bytes.byte(), bytes.byte());
        let mut line = [0; LINE];
        line[..4].copy_from_slice(&(self.lap << 8 | u32::from(form)).to_le_bytes());
        let size = u64::from(tag) << 32 | u64::from(len);
        let release = u64::from(slot) << 32 | u64::from(token);
        for (at, word) in [offset, size, release, generation.into()].into_iter().enumerate() {
            line[24 + 8 * at..32 + 8 * at].copy_from_slice(&word.to_le_bytes());
        }
        self.put(Hostile::line(self.next), &line);
    }

    fn write_segment(&mut self, at: usize, bytes: &mut Bytes<'_>) {
        let len = bytes.byte().into();
        let bytes = bytes.up_to(len);
        self.put(at, &bytes[..bytes.len().min(self.segment.len() - at)]);
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.segment[at..at + bytes.len()].copy_from_slice(bytes);
        self.hostile.write_segment(at, bytes);
    }

    /// Returns what the next poll must find, by the contents of the peer's memory.
    fn due(&self) -> Due {
        let line = &self.segment[Hostile::line(self.next)..][..LINE];
        let [form, lap @ ..] = *line.first_chunk::<4>().expect("a line is longer");
        let lap = u32::from_le_bytes([lap[0], lap[1], lap[2], 0]);
        if lap == self.lap - 1 {
            return Due::Nothing;
        }
        if lap != self.lap {
            return Due::Fault;
        }
        let len = usize::from(form);
        let longest = LIMITS.max_receive_payload as usize;
        let inline = &line[HEADER_LEN..];
        match form {
            RING => self.elsewhere(line).map_or(Due::Fault, Due::Message),
            REGION => Due::InRegion,
            _ if len <= INLINE_PAYLOAD.min(longest) => Due::Message(inline[..len].to_vec()),
            _ if len <= LONGEST_SHORT.min(longest) => {
                let slot = &self.segment[Hostile::slot(self.next)..][..len - INLINE_PAYLOAD];
                Due::Message([inline, slot].concat())
            }
            _ => Due::Fault,
        }
    }

    /// Returns the payload in send memory to which a line refers; none if the line refers to anything else.
    fn elsewhere(&self, line: &[u8]) -> Option<Vec<u8>> {
        let word = |at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"));
        let (offset, len, tag) = (word(24), word(32) & u64::from(u32::MAX), word(32) >> 32);
        let end = offset.checked_add(len).filter(|end| *end <= self.memory.len() as u64)?;
        let is_valid = len <= LIMITS.max_receive_payload.into() && tag < Hostile::lines_and_tags().1 as u64;
        let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
        is_valid.then(|| self.memory[range].to_vec())
    }

    /// Polls until nothing is found. No more messages are due than there are lines, because each line is due in one lap.
    fn drain(&mut self) {
        for _ in 0..=Hostile::lines_and_tags().0 {
            if !self.poll() {
                return;
            }
        }
        panic!("more messages than lines");
    }

    /// Polls once. Returns whether there was a message.
    fn poll(&mut self) -> bool {
        let (due, line) = (self.due(), self.segment[Hostile::line(self.next)..][..HEADER_LEN].to_vec());
        let polled = poll_by_value(&mut self.victim);
        if let Some(failure) = self.failure {
            assert_eq!(polled.err(), Some(failure), "a failure is permanent");
            return false;
        }
        match (polled, due) {
            (Ok(None), Due::Nothing) => return false,
            (Ok(Some(message)), Due::Message(payload)) => self.take(message, &line, Some(&payload)),
            (Ok(Some(message)), Due::InRegion) => self.take(message, &line, None),
            (Err(failure), due) => {
                let explained = self.doubt || matches!(due, Due::Fault | Due::InRegion | Due::Nothing);
                assert!(explained, "{failure} in place of {due:?}");
                let is_lost = failure == FabricError::Lost;
                assert!(is_lost || matches!(failure, FabricError::Peer(_)), "{failure} blames nobody");
                assert!(!is_lost || matches!(due, Due::Nothing | Due::InRegion), "{due:?} was lost");
                self.failure = Some(failure);
                return false;
            }
            (polled, due) => panic!("{polled:?} in place of {due:?}"),
        }
        true
    }

    fn take(&mut self, message: Received<ShmLease>, line: &[u8], expected: Option<&[u8]>) {
        let header: [u8; HEADER_LEN] = *message.header.as_array();
        assert_eq!(header[4..], line[4..], "the header");
        let mut payload = vec![0; message.payload.len()];
        assert!(payload.len() <= LIMITS.max_receive_payload as usize, "{} bytes", payload.len());
        message.payload.copy_to(0, &mut payload).expect("all bytes of a payload can be copied");
        assert!(message.payload.copy_to(payload.len(), &mut [0]).is_err(), "a byte behind the payload");
        assert!(expected.is_none_or(|expected| expected == payload), "{payload:?}, expected {expected:?}");
        self.next += 1;
        if self.next == Hostile::lines_and_tags().0 {
            (self.next, self.lap) = (0, self.lap + 1);
        }
        if self.held.len() == HELD {
            self.held.remove(0);
        }
        self.held.push(message.payload);
        let lent = self.victim.counts().lent;
        assert!(lent <= u64::from(LIMITS.max_receive_payload) * HELD as u64, "{lent} bytes are lent");
    }

    /// This side posts a message with its payload in send memory, whose release the peer must report.
    fn post(&mut self, len: u16) {
        let payload = Gather::Ring(Extent { offset: 0, len: u32::from(len) % (LIMITS.max_send_payload + 1) });
        let operation = Operation::Send { header: &RawHeader::default(), payload };
        let signal = Signal::Signalled(WrId { slot: self.posted, generation: 0 });
        if self.victim.post(SendWork { signal, operation }).is_ok() {
            self.posted += 1;
        }
        // Fails if the connection has failed, as the next poll reports.
        let _ = self.victim.ring_doorbell(pronto_core::fabric::DoorbellEvent::Solicited);
    }

    /// Takes the completions. There are no more than posted messages.
    fn complete(&mut self) {
        let mut completed = 0;
        while self.victim.poll_send().is_some() {
            completed += 1;
            assert!(completed <= self.posted, "more completions than messages");
        }
        self.posted -= completed;
        // The peer may have reported releases that were not due.
        self.doubt = true;
    }

    /// Arms or disarms. Disarming counts wake-ups, of which the peer may have sent too many.
    fn arm(&mut self, how: usize) {
        let events = [Armed::Nothing, Armed::Solicited, Armed::All][how];
        let armed = self.victim.arm(events);
        assert!(armed.is_ok() || self.failure.is_some() || self.doubt, "{armed:?}");
        self.doubt = true;
    }

    fn announce(&mut self, bytes: &mut Bytes<'_>) {
        let kind = bytes.below(Passed::ALL.len() + 1);
        let len = bytes.below(48);
        self.hostile.announce(bytes.up_to(len), Passed::ALL.get(kind).copied());
        // A changed state word makes this side receive it.
        self.put(Hostile::state(), &[bytes.byte() & !1]);
    }

    fn rare(&mut self, which: usize) {
        match which {
            0 => self.held.clear(),
            1 => self.hostile.close_bell(),
            2 => self.hostile.close_announcements(),
            3 => self.put(Hostile::state(), &[1]),
            _ => drop(self.held.pop()),
        }
    }
}

const _: () =
    assert!(LIMITS.max_receive_payload as usize > LONGEST_SHORT, "messages of every form are possible");
const _: () = assert!(LIMITS.send_memory < u16::MAX as u32, "offsets reach behind the memory");
