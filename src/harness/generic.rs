//! Defined harnesses.
