//! The power goes: what was acknowledged is on the disk, and not only in the memory of the machine.
//!
//! A killed process proves nothing about that, because the kernel writes for it what it left behind. Here the store is on a
//! file system of its own that writes nothing by itself, and what goes on is a copy of what has reached its disk.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lf_store::{Store, StoreError};
use lf_tests::disk::{Mount, copy_image, new_image};
use lf_tests::keeping::{COMMITS, missing};
use lf_tests::program;
use lf_tests::runtime::block_on;

const DISKS: u64 = 8;
const CUTS_OF_A_DISK: u64 = 25;
/// Of the disk; the log of the store is started anew after 4.
const MEGABYTES: u64 = 64;
/// Acknowledged commits before a cut.
const MOST: u64 = 160;

/// By conversation and turn, how many commits were acknowledged.
type Acknowledged = BTreeMap<(String, String), usize>;

struct Disk {
    directory: tempfile::TempDir,
    mount: Option<Mount>,
    image: PathBuf,
    /// Of the numbers that say when the power goes.
    state: u64,
}

impl Disk {
    fn new(seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image-0");
        new_image(&image, MEGABYTES);
        let mount = Some(Mount::image(&image, &directory.path().join("mounted")));
        Self { directory, mount, image, state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("mounted/data")
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    /// Lets a process write until some time after its first acknowledgements, and takes the power away. Gives what it was
    /// told.
    fn cut(&mut self, number: u64, durability: &str) -> Acknowledged {
        let mut writer = Command::new(program::store_writer())
            .arg(self.data())
            .args([durability, &format!("conversation-{number}")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let enough = usize::try_from(self.random(MOST)).unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut said: Vec<String> = lines.by_ref().take(enough).collect();
        writer.kill().unwrap();
        let status = writer.wait().unwrap();
        assert_eq!(status.code(), None, "the writer ended by itself");
        said.extend(lines);
        let next = self.directory.path().join(format!("image-{}", number + 1));
        copy_image(&self.image, &next);
        self.mount.take().unwrap().unmount();
        std::fs::remove_file(std::mem::replace(&mut self.image, next)).unwrap();
        self.mount = Some(Mount::image(&self.image, &self.directory.path().join("mounted")));
        let mut acknowledged = Acknowledged::new();
        for line in said {
            let (named, commits) = line.rsplit_once(' ').unwrap();
            let (conversation, turn) = named.split_once(' ').unwrap();
            acknowledged.insert((conversation.to_owned(), turn.to_owned()), commits.parse().unwrap());
        }
        acknowledged
    }
}

/// What is not there of what was acknowledged.
fn lost(data: &Path, acknowledged: &Acknowledged) -> Vec<String> {
    let missing = block_on(async {
        let store = Store::open(data.to_owned()).await?;
        let mut lost = Vec::new();
        for ((conversation, turn), commits) in acknowledged {
            assert!(*commits <= COMMITS);
            lost.extend(missing(&store, conversation, turn, *commits).await?);
        }
        Ok::<_, StoreError>(lost)
    });
    let file = rusqlite::Connection::open(data.join("lf.db")).unwrap();
    let sound: String = file.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    file.execute("INSERT INTO said (said, rank) VALUES ('integrity-check', 1)", []).unwrap();
    missing.unwrap()
}

fn cut_again_and_again(seed: u64) -> usize {
    let mut disk = Disk::new(seed);
    let mut all = Acknowledged::new();
    for number in 0..CUTS_OF_A_DISK {
        let acknowledged = disk.cut(number, "full");
        assert_eq!(lost(&disk.data(), &acknowledged), [] as [&str; 0], "disk {seed}, cut {number}");
        all.extend(acknowledged);
    }
    assert_eq!(lost(&disk.data(), &all), [] as [&str; 0], "disk {seed}, of all cuts");
    all.values().sum()
}

#[test]
fn two_hundred_power_cuts_lose_nothing_that_was_acknowledged() {
    let commits: usize = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || {
                (0..DISKS).filter(|disk| disk % 2 == half).map(cut_again_and_again).sum::<usize>()
            })
        });
        halves.map(|half| half.join().unwrap()).iter().sum()
    });
    assert!(commits > 5000, "only {commits} commits were acknowledged in all");
}

/// Without this the test above could pass on a machine that loses nothing, or because it looks in the wrong place.
#[test]
fn a_power_cut_does_lose_what_was_acknowledged_without_being_synced() {
    let mut disk = Disk::new(99);
    let found = (0..10).any(|number| {
        let acknowledged = disk.cut(number, "normal");
        !lost(&disk.data(), &acknowledged).is_empty()
    });
    assert!(found, "ten power cuts took nothing: the test does not cut the power");
}
