//! Floor 4: agent programs, each as two pure functions round one process runner and its shim.
