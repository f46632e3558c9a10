//! One buffer, one holder.

fn main() {}

fn two(loan: pronto_core::buf::Loan) -> [pronto_core::buf::Loan; 2] {
    [loan.clone(), loan]
}
