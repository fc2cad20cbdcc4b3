//! Floor 8: compose the parts, start in order, recover, stop in reverse.
