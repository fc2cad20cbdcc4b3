//! Floor 5: the loop. Intake accepts, the router decides, the dispatcher runs turns.
