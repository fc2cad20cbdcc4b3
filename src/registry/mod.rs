//! Floor 3: sessions as JSON files, atomic and lockable; one bad file never hurts another.
