//! Floor 4: calling out.
