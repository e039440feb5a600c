//! What must hold of a gateway.
