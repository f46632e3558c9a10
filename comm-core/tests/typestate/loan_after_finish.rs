//! Finishing consumes the loan.

fn main() {}

fn write(mut loan: pronto_core::buf::Loan) {
    let _frame = loan.finish();
    loan.as_mut_slice()[0] = 1;
}
