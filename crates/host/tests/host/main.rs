//! Made-up machines: what is read from them, the plans that rules and the paper's layout lead to, and their picture.

mod disks;
mod layout;
mod machines;
mod made;
mod rules;
