//! A posted buffer completes once.

fn main() {}

fn complete(posted: pronto_core::buf::Posted) {
    drop(posted.completed());
    drop(posted.completed());
}
