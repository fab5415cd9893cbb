//! A Postgres server of the tests' own: made when it is first asked for, in a directory that goes away with it, with the
//! durability that it has in production. It ends with the program that started it, however that ends.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test kit: a broken expectation is a failed test, and it starts a server"
)]

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use nix::unistd::{Uid, User};

/// It must never be seen in an error or a log.
pub const PASSWORD: &str = "pass-never-shown";

/// How often another port is tried, where somebody was faster.
const ATTEMPTS: usize = 5;

/// A running server.
pub struct Postgres {
    programs: PathBuf,
    directory: PathBuf,
    port: u16,
    databases: AtomicUsize,
    /// Databases are copies of one template, which only one may make at a time.
    making: Mutex<()>,
    /// Waits for the end of its input, which comes with the end of this program, and clears away.
    _clearing: (Child, ChildStdin),
}

/// A database of one test.
pub struct Database {
    server: &'static Postgres,
    pub name: String,
}

impl Postgres {
    /// The one server of this test program.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Postgres> = LazyLock::new(Postgres::start);
        &SHARED
    }

    /// Another server, for a test that stops it. It is left to the end of the program.
    pub fn own() -> &'static Self {
        Box::leak(Box::new(Self::start()))
    }

    fn start() -> Self {
        let programs = programs();
        let directory =
            tempfile::Builder::new().prefix("lf-postgres-").tempdir().expect("a directory").keep();
        if let Some(user) = other_user() {
            std::os::unix::fs::chown(&directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
                .expect("the directory can be given to the server's user");
        }
        let clearing = clearing(&programs, &directory);
        let mut server = Self {
            programs,
            directory,
            port: 0,
            databases: AtomicUsize::new(0),
            making: Mutex::new(()),
            _clearing: clearing,
        };
        server.make();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            if server.try_start().status.success() {
                return server;
            }
        }
        panic!("Postgres does not start:\n{}", server.log());
    }

    fn make(&self) {
        let password = self.directory.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        if let Some(user) = other_user() {
            std::os::unix::fs::chown(&password, Some(user.uid.as_raw()), None).unwrap();
        }
        let mut command = self.program("initdb");
        command.args(["--username=lf", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]);
        command.args(["--no-sync", "--no-instructions"]).arg("--pwfile").arg(&password);
        succeed(command.arg("--pgdata").arg(self.data()));
    }

    fn try_start(&self) -> Output {
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={} -c unix_socket_directories='' -c max_connections=300 -c fsync=on",
            self.port
        );
        let mut command = self.program("pg_ctl");
        command.arg("--pgdata").arg(self.data()).args(["start", "--wait", "--timeout=60", "--silent"]);
        command.arg("--log").arg(self.directory.join("log")).args(["--options", &options]);
        command.output().expect("pg_ctl can be run")
    }

    /// After [`Self::stop`], at the same address.
    pub fn start_again(&self) {
        let started = self.try_start();
        assert!(started.status.success(), "Postgres does not start again:\n{}", self.log());
    }

    /// Ends all connections and the server.
    pub fn stop(&self) {
        let mut command = self.program("pg_ctl");
        succeed(command.arg("--pgdata").arg(self.data()).args(["stop", "--wait", "--mode=fast", "--silent"]));
    }

    /// Speaks TLS from now on to who asks for it, with this certificate and key in PEM.
    pub fn certify(&self, certificate: &str, key: &str) {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.data().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(user) = other_user() {
                std::os::unix::fs::chown(&path, Some(user.uid.as_raw()), None).unwrap();
            }
        }
        self.ask("postgres", "ALTER SYSTEM SET ssl = on");
        self.stop();
        self.start_again();
    }

    /// A new and empty database.
    pub fn database(&'static self) -> Database {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        let one = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.ask("postgres", &format!("CREATE DATABASE {name}"));
        drop(one);
        Database { server: self, name }
    }

    /// What `psql` says to this statement: a line for each row, columns divided by `|`.
    fn ask(&self, database: &str, sql: &str) -> String {
        let mut command = Command::new(self.programs.join("psql"));
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        command.args(["--command", sql, "--dbname", &self.url(database)]);
        succeed(&mut command)
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://lf:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        as_other_user(&mut command);
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

impl Database {
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Where it is, as it may be shown.
    pub fn place(&self) -> String {
        format!("postgres://127.0.0.1:{}/{}", self.server.port, self.name)
    }

    /// What `psql` says to this statement: a line for each row, columns divided by `|`.
    #[track_caller]
    pub fn ask(&self, sql: &str) -> String {
        self.server.ask(&self.name, sql).trim().to_owned()
    }
}

#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A port that nobody has. It is none of those that the system hands out to whoever asks for any (32768 and on): while the
/// server is stopped, nobody but another server of a test would take it.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    // programs that run at the same time begin at different places
    let begin = u16::try_from(std::process::id() * 37 % u32::from(COUNT)).unwrap_or_default();
    let free = (0..COUNT).find_map(|_| {
        let port = FIRST + (begin + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
    });
    free.expect("a free port")
}

/// The newest installed server: as Debian lays them out, or on the `PATH`.
fn programs() -> PathBuf {
    let mut installed: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|versions| versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).collect())
        .unwrap_or_default();
    let version = |path: &PathBuf| path.parent()?.file_name()?.to_str()?.parse::<f64>().ok();
    installed.sort_by(|one, other| version(other).partial_cmp(&version(one)).unwrap());
    let path = std::env::var_os("PATH").unwrap_or_default();
    installed.extend(std::env::split_paths(&path));
    let is_there = |directory: &PathBuf| {
        ["initdb", "pg_ctl", "psql"].iter().all(|program| directory.join(program).is_file())
    };
    installed.into_iter().find(is_there).unwrap_or_else(|| {
        panic!("this test needs a Postgres server: run `tests/postgres/install`, or install the package `postgresql`")
    })
}

/// Postgres refuses to run as root.
fn other_user() -> Option<User> {
    if !Uid::effective().is_root() {
        return None;
    }
    let named = |name| User::from_name(name).ok().flatten();
    Some(
        named("postgres")
            .or_else(|| named("nobody"))
            .expect("root needs a user `postgres` or `nobody` for the server"),
    )
}

fn as_other_user(command: &mut Command) {
    if let Some(user) = other_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
}

fn clearing(programs: &Path, directory: &Path) -> (Child, ChildStdin) {
    let mut command = Command::new("sh");
    let script = r#"cat; "$1" --pgdata "$2/data" --mode=immediate stop; rm -rf "$2""#;
    command.args(["-c", script, "clear"]).arg(programs.join("pg_ctl")).arg(directory);
    as_other_user(&mut command);
    // a signal to the test's group must not end it before its work is done
    command.process_group(0).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("sh can be started");
    let input = child.stdin.take().expect("its input is a pipe");
    (child, input)
}
