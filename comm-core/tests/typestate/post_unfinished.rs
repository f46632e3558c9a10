//! Only a finished payload is posted.

fn main() {}

fn send(loan: pronto_core::buf::Loan) {
    let _posted = loan.post();
}
