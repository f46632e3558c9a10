//! A finished payload is read only.

fn main() {}

fn write(loan: pronto_core::buf::Loan) {
    let mut frame = loan.finish();
    frame.as_mut_slice()[0] = 1;
}
