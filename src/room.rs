//! Room for bodies. Large ones lie in memory of their own, which goes back to the system as soon as they are dropped:
//! an allocator keeps blocks of a size that it has given out before, and after a few bodies of 25 MB that is hundreds of
//! MB that nobody uses.

use bytes::Bytes;
use memmap2::MmapMut;

/// From this size on a body has memory of its own.
const LARGE: usize = 1 << 20;

/// Bytes that grow at their end, and then are shared without being copied.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    filled: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    Own(MmapMut),
}

impl Room {
    /// Room for `bytes`, of which nothing is used before it is filled.
    pub fn new(bytes: usize) -> Self {
        let own = (bytes >= LARGE).then(|| MmapMut::map_anon(bytes).ok()).flatten();
        // Where the system refuses, the allocator has the last word.
        Self { memory: own.map_or_else(|| Memory::Heap(Vec::with_capacity(bytes)), Memory::Own), filled: 0 }
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Adds `data`; where the room is too small it becomes twice as large.
    pub fn extend(&mut self, data: &[u8]) {
        let end = self.filled + data.len();
        let is_heap = matches!(self.memory, Memory::Heap(_));
        if end > self.capacity() || (is_heap && end >= LARGE) {
            let mut larger = Self::new(end.max(self.capacity() * 2));
            larger.fill(self.as_ref());
            *self = larger;
        }
        self.fill(data);
    }

    fn fill(&mut self, data: &[u8]) {
        let end = self.filled + data.len();
        match &mut self.memory {
            Memory::Heap(bytes) => bytes.extend_from_slice(data),
            Memory::Own(bytes) => {
                if let Some(place) = bytes.get_mut(self.filled..end) {
                    place.copy_from_slice(data);
                }
            }
        }
        self.filled = end;
    }

    fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Heap(bytes) => bytes.capacity(),
            Memory::Own(bytes) => bytes.len(),
        }
    }

    /// What it holds, to be shared.
    pub fn into_bytes(self) -> Bytes {
        match self.memory {
            Memory::Heap(bytes) => Bytes::from(bytes),
            Memory::Own(_) => Bytes::from_owner(self),
        }
    }

    /// Room for `most` bytes that `write` fills from the beginning; it says how many it wrote.
    pub fn written<E>(most: usize, write: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Self, E> {
        let mut room = Self::new(most);
        let place = match &mut room.memory {
            Memory::Heap(bytes) => {
                bytes.resize(most, 0);
                bytes.as_mut_slice()
            }
            Memory::Own(bytes) => bytes,
        };
        room.filled = write(place)?.min(most);
        if let Memory::Heap(bytes) = &mut room.memory {
            bytes.truncate(room.filled);
        }
        Ok(room)
    }
}

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        let bytes = match &self.memory {
            Memory::Heap(bytes) => bytes.as_slice(),
            Memory::Own(bytes) => bytes,
        };
        bytes.get(..self.filled).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_however_large_it_becomes() {
        for (announced, piece, count) in
            [(0, 7, 3), (100, 60, 3), (LARGE, 4096, 300), (10, 100_000, 30), (LARGE - 1, 1, LARGE + 1)]
        {
            let mut room = Room::new(announced);
            let mut wanted = Vec::new();
            for n in 0..count {
                let data = vec![(n % 251) as u8; piece];
                room.extend(&data);
                wanted.extend(data);
            }
            assert_eq!(room.len(), wanted.len());
            assert!(room.as_ref() == wanted);
            assert_eq!(matches!(room.memory, Memory::Own(_)), wanted.len() >= LARGE, "{announced} {piece} {count}");
            assert!(room.into_bytes() == wanted);
        }
    }

    #[test]
    fn what_is_written_is_no_longer_than_it_says() {
        for most in [10, 2 * LARGE] {
            let write = |place: &mut [u8]| -> Result<usize, ()> {
                assert_eq!(place.len(), most);
                place[..3].copy_from_slice(b"abc");
                Ok(3)
            };
            let room = Room::written(most, write).expect("written");
            assert_eq!(room.into_bytes(), "abc");
            assert_eq!(Room::written(most, |_| Err(5)).expect_err("refused"), 5);
        }
    }
}
