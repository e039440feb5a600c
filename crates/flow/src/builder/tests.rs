//! Each rule of the protocol, against the machine alone.
