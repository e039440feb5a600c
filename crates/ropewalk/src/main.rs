//! The program: arguments in, text out.
fn main() {}
