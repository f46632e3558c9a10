//! The conformance suite of the fabric seam, over loopback, for each class, with and without TLS.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod certificates;
mod harness;

use harness::{conforms, conforms_with_tls};
use pronto_core::Class;
use pronto_fabric_tcp::{Options, TlsBy};

#[test]
fn control_conforms() {
    conforms(Class::Control, [(); 2].map(|()| Options::default()));
}

#[test]
fn bulk_conforms() {
    conforms(Class::Bulk, [(); 2].map(|()| Options::default()));
}

#[test]
fn each_class_conforms_with_tls() {
    conforms_with_tls(TlsBy::Process);
}
