//! Floor 3: the journal, inboxes, turns and links in SQLite; one writer that commits in groups.
