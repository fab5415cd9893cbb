//! Files that cannot be changed, in mounts of one's own. Landlock sees who opens a file, and not who changes its mode, its
//! owner, its times or its attributes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

/// Mounts all that is mounted as read-only, but for what is at or below these paths. Only for who is in a mount namespace of
/// their own, in which nothing of it is seen outside.
pub(crate) fn keep_unchanged_but(changed: &[OsString]) -> io::Result<()> {
    // what is not there cannot be changed
    let changed: Vec<PathBuf> = changed.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    if changed.iter().any(|path| path == Path::new("/")) {
        return Ok(());
    }
    for path in &changed {
        // what is mounted below it comes with it
        mount(Some(path), path, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
    }
    let mounts = fs::read("/proc/self/mountinfo")?;
    for (path, flags) in mounts.split(|byte| *byte == b'\n').filter_map(parse) {
        if flags.contains(MsFlags::MS_RDONLY) || changed.iter().any(|changed| path.starts_with(changed)) {
            continue;
        }
        let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        match mount(None::<&str>, &path, None::<&str>, flags, None::<&str>) {
            // something else is mounted above it, or this user does not get there: nor will what is started
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where it is mounted, and how: `proc_pid_mountinfo(5)`, the fifth and sixth field. Who has no rights outside of a user
/// namespace may not take away any of these flags; when it was last read is left as it is without one.
fn parse(line: &[u8]) -> Option<(PathBuf, MsFlags)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = unescaped(fields.nth(4)?);
    let options = fields.next()?.split(|byte| *byte == b',');
    let flags = options.map(|option| match option {
        b"ro" => MsFlags::MS_RDONLY,
        b"nosuid" => MsFlags::MS_NOSUID,
        b"nodev" => MsFlags::MS_NODEV,
        b"noexec" => MsFlags::MS_NOEXEC,
        b"nosymfollow" => MsFlags::from_bits_retain(libc::MS_NOSYMFOLLOW),
        _ => MsFlags::empty(),
    });
    Some((path, flags.collect()))
}

/// Blanks, tabs, line feeds and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut path = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(part.len().min(3));
        let code = OsStr::from_bytes(digits).to_str().and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.extend(code);
        path.extend(rest);
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_something_is_mounted_and_how_is_read() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134c ro,nosuid,noexec,relatime master:1 - ext3 /dev/root rw,errors=continue";
        let (path, flags) = parse(line).unwrap();
        assert_eq!(path, Path::new("/mnt/a b\\c"));
        assert_eq!(flags, MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC);
        assert_eq!(parse(b""), None);
    }
}
