//! Words of harnesses.
