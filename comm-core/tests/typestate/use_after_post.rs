//! Posting consumes the frame.

fn main() {}

fn send(frame: pronto_core::buf::Frame) {
    let _posted = frame.post();
    frame.bytes();
}
