//! A disk that can be filled.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A small disk of its own for a state directory. `None` where the system lets us mount none.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// A disk of so many MiB at this path.
    pub fn at(path: PathBuf, size: u32) -> Option<Self> {
        fs::create_dir_all(&path).expect("a directory");
        let size = format!("size={size}m");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(&path).output().ok()?;
        mount.status.success().then_some(Self(path))
    }

    /// Changes how it is mounted: `ro`, `rw`.
    pub fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).output().expect("mount");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Takes all room but so many bytes.
    pub fn fill(&self, but: u64) {
        let free = rustix::fs::statvfs(&self.0).expect("statvfs");
        let room = (free.f_bavail * free.f_frsize).saturating_sub(but);
        let filled = fs::write(self.0.join("ballast"), vec![1; usize::try_from(room).expect("a size")]);
        // Somebody else may have taken the last of the room meanwhile.
        let is_full = |error: &std::io::Error| error.kind() == std::io::ErrorKind::StorageFull;
        assert!(filled.as_ref().err().is_none_or(is_full), "{filled:?}");
    }

    /// Gives that room back.
    pub fn free(&self) {
        fs::remove_file(self.0.join("ballast")).expect("no ballast");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}
