//! A harness's output: always read, so that it never blocks, and kept up to a cap, head and tail, in constant memory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::harness::EndMark;
use crate::harness::turn_dir::private;

/// The longest line in which an end mark is looked for.
const LONGEST_LINE: usize = 1 << 20;

/// When output was heard last, over both streams.
#[derive(Clone)]
pub(super) struct Heard {
    /// When the harness was started.
    pub(super) started: Instant,
    /// Nanoseconds from then to the last byte; 0 where none came.
    pub(super) last: Arc<AtomicU64>,
    /// Called for the first bytes of all.
    pub(super) first: Arc<dyn Fn() + Send + Sync>,
}

impl Heard {
    fn note(&self) {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        if self.last.fetch_max(now, Ordering::Relaxed) == 0 {
            (self.first)();
        }
    }
}

/// Reads `from` to its end on a thread of its own, and then says how many bytes were not kept.
pub(super) fn drain(
    mut from: impl Read + Send + 'static,
    mut keeper: Keeper,
    mut watch: Option<LineWatch>,
    heard: Heard,
    done: Sender<u64>,
) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let bytes = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => buffer.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            heard.note();
            keeper.keep(bytes);
            if let Some(watch) = &mut watch {
                watch.feed(bytes);
            }
        }
        // Nobody listens where the supervisor has given up on this stream.
        let _ = done.send(keeper.finish());
    });
}

/// Keeps the first half of a cap as it comes and the last half in a ring behind it, in one file.
pub(super) struct Keeper {
    path: PathBuf,
    file: Option<File>,
    head: u64,
    ring: u64,
    seen: u64,
    lost: u64,
}

impl Keeper {
    /// Keeps at most `cap` bytes in the file at `path`. Where the disk refuses, bytes are counted and not kept: the
    /// harness must not block for it.
    pub(super) fn new(path: PathBuf, cap: u64) -> Self {
        let file = private().read(true).create(true).truncate(true).open(&path).ok();
        Self { path, file, head: cap / 2, ring: cap - cap / 2, seen: 0, lost: 0 }
    }

    /// Takes the next bytes.
    pub(super) fn keep(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (at, room) = self.place();
            let take = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            if take == 0 {
                self.seen += bytes.len() as u64;
                return;
            }
            let (now, rest) = bytes.split_at(take);
            match &self.file {
                Some(file) if file.write_all_at(now, at).is_ok() => {}
                _ => self.lost += take as u64,
            }
            self.seen += take as u64;
            bytes = rest;
        }
    }

    /// Where the next byte goes, and how many fit there in a row.
    fn place(&self) -> (u64, u64) {
        if self.seen < self.head {
            return (self.seen, self.head - self.seen);
        }
        let into = (self.seen - self.head).checked_rem(self.ring).unwrap_or(0);
        (self.head + into, self.ring - into)
    }

    /// Puts the ring into order, with a line that says how much is left out, and gives that number.
    pub(super) fn finish(mut self) -> u64 {
        let left_out = self.seen.saturating_sub(self.head + self.ring);
        // The result that is written next is judged by these bytes, also after a power cut.
        if left_out == 0 && self.file.as_ref().is_some_and(|file| file.sync_data().is_err()) {
            return self.lost.max(self.seen);
        }
        if left_out > 0
            && let Some(file) = self.file.take()
            && self.straighten(&file, left_out).is_err()
        {
            // The ring stays as it is: every kept byte is there, its tail in the wrong order.
            return left_out;
        }
        left_out.max(self.lost)
    }

    fn straighten(&self, ring: &File, left_out: u64) -> io::Result<()> {
        let path = self.path.with_extension("whole");
        let mut whole = private().create(true).truncate(true).open(&path)?;
        let (seam, _) = self.place();
        copy(ring, 0..self.head, &mut whole)?;
        write!(whole, "\n[... {left_out} bytes left out ...]\n")?;
        copy(ring, seam..self.head + self.ring, &mut whole)?;
        copy(ring, self.head..seam, &mut whole)?;
        whole.sync_data()?;
        std::fs::rename(&path, &self.path)
    }
}

fn copy(from: &File, range: std::ops::Range<u64>, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(buffer.len());
        let read = from.read_at(buffer.get_mut(..want).unwrap_or_default(), at)?;
        if read == 0 {
            break;
        }
        to.write_all(buffer.get(..read).unwrap_or_default())?;
        at += read as u64;
    }
    Ok(())
}

/// Looks for an end mark in lines of bounded length.
pub(super) struct LineWatch {
    mark: EndMark,
    found: Box<dyn FnMut() + Send>,
    line: Vec<u8>,
    too_long: bool,
}

impl LineWatch {
    /// Calls `found` for every line that bears `mark`.
    pub(super) fn new(mark: EndMark, found: impl FnMut() + Send + 'static) -> Self {
        Self { mark, found: Box::new(found), line: Vec::new(), too_long: false }
    }

    /// Takes the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > LONGEST_LINE {
                self.too_long = true;
                self.line.clear();
            }
            if !self.too_long {
                self.line.extend_from_slice(piece);
            }
            if piece.ends_with(b"\n") {
                let bears = !self.too_long
                    && serde_json::from_slice(&self.line).is_ok_and(|document| self.mark.is_in(&document));
                self.line.clear();
                self.too_long = false;
                if bears {
                    (self.found)();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(cap: u64, pieces: &[&str]) -> (String, u64) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("stdout");
        let mut keeper = Keeper::new(path.clone(), cap);
        pieces.iter().for_each(|piece| keeper.keep(piece.as_bytes()));
        let dropped = keeper.finish();
        (std::fs::read_to_string(path).expect("the file"), dropped)
    }

    #[test]
    fn everything_is_kept_up_to_the_cap() {
        assert_eq!(kept(10, &["01234", "56789"]), ("0123456789".into(), 0));
        assert_eq!(kept(10, &[]), (String::new(), 0));
    }

    #[test]
    fn beyond_it_head_and_tail_are_kept_in_order() {
        let wanted = ("01234\n[... 3 bytes left out ...]\n89abc".to_string(), 3);
        assert_eq!(kept(10, &["0123456789abc"]), wanted);
        let pieces: Vec<String> = "0123456789abc".chars().map(String::from).collect();
        assert_eq!(kept(10, &pieces.iter().map(String::as_str).collect::<Vec<_>>()), wanted);
    }

    #[test]
    fn a_cap_of_nothing_keeps_nothing() {
        assert_eq!(kept(0, &["abc"]), ("\n[... 3 bytes left out ...]\n".into(), 3));
    }

    #[test]
    fn the_end_mark_is_found_in_whole_lines_only() {
        let mark = EndMark([("/type".to_string(), "result".into())].into());
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let mut watch = LineWatch::new(mark, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        watch.feed(b"{\"type\":\"resu");
        watch.feed(b"lt\"}");
        assert_eq!(count.load(Ordering::Relaxed), 0);
        watch.feed(b"\n{\"type\":\"other\"}\nnoise\n");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        watch.feed(&vec![b'x'; 3 * LONGEST_LINE]);
        assert!(watch.line.capacity() <= 2 * LONGEST_LINE);
        watch.feed(b"\n{\"type\":\"result\"}\n");
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
