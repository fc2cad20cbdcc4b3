//! Floor 7: the configuration in layers, and where each value came from.
