use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::SystemTime;

use futures_util::FutureExt as _;
use indexmap::IndexMap;
use lf_core::McpServer;
use lf_core::project::{StdioServer, Transport};
use lf_mcp::{PoolOptions, ServerState};

use super::*;
use crate::app::{Broken, Key, Look};
use crate::reload::How;

/// Fails to start at once, and so shows whether its session is still known.
fn server(name: &str) -> Arc<McpServer> {
    let transport = Transport::Stdio(StdioServer::new(format!("/nowhere/{name}"), &[]));
    Arc::new(McpServer { startup_timeout: Duration::from_secs(1), ..McpServer::new(name, transport) })
}

/// A project with these servers.
fn project(servers: &str) -> Project {
    Project {
        namespace: "main".to_owned(),
        name: "main".to_owned(),
        root: PathBuf::new(),
        servers: servers.split_whitespace().map(|name| (name.to_owned(), Ok(server(name)))).collect(),
        models: IndexMap::new(),
        default_model: None,
        prompts: IndexMap::new(),
        carried: Vec::new(),
        storage: Ok(Default::default()),
        policy: lf_core::policy::Policy::default(),
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
    }
}

struct Fixture {
    directory: tempfile::TempDir,
    projects: Projects,
    pool: SessionPool,
    reads: Arc<AtomicUsize>,
}

impl Fixture {
    /// Files list the servers of their projects.
    fn new(main: Option<Project>) -> Self {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = reads.clone();
        let loader: Loader = Box::new(move |path| {
            counted.fetch_add(1, Ordering::Relaxed);
            let text = std::fs::read_to_string(path).map_err(|error| Broken::new(error.to_string()))?;
            Ok(Opened { text: text.clone(), ..project(&text).into() })
        });
        Self { reads, ..Self::with_loader(main.map(Into::into), loader) }
    }

    fn with_loader(main: Option<Opened>, loader: Loader) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pool = SessionPool::new(PoolOptions::new(Vec::new(), PathBuf::from("lf")));
        let projects = Projects::new(
            main,
            directory.path().to_owned(),
            loader,
            pool.clone(),
            Arc::default(),
            Arc::new(Audit::none()),
        );
        Self { directory, projects, pool, reads: Arc::default() }
    }

    fn path(&self, name: &str, file: &str) -> PathBuf {
        self.directory.path().join("projects/ns").join(name).join(file)
    }

    fn write(&self, name: &str, file: &str, text: &str) {
        let path = self.path(name, file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        // long enough ago to be whole
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(1)).unwrap();
    }

    /// Asks until a project is there no more.
    async fn gone(&self, name: &str) -> Refusal {
        let asking = async {
            loop {
                match self.projects.find("ns", name).await {
                    Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    Err(refusal) => return refusal,
                }
            }
        };
        timeout(Duration::from_secs(10), asking).await.expect("it is gone")
    }

    fn key(&self, name: &str) -> Key {
        self.projects.reader().key_of("ns", name).unwrap()
    }

    async fn looked(&self, key: &Key) -> Look {
        let key = key.clone();
        self.projects.aside(move |reader| reader.look(&key, How::Quiet).unwrap()).await.unwrap()
    }

    async fn servers(&self, name: &str) -> Vec<String> {
        self.projects.find("ns", name).await.unwrap().servers.keys().cloned().collect()
    }

    /// Begins a session with each server.
    async fn use_all(&self, project: &Project) {
        let servers = project.servers.iter().map(|(name, server)| (name.clone(), server.clone()));
        self.pool.tools(servers).probe().await;
    }

    fn has_session(&self, name: &str) -> bool {
        self.pool.status(&server(name)) != ServerState::Idle { last_error: None }
    }
}

#[tokio::test]
async fn a_project_is_read_when_it_is_asked_for_and_again_when_a_file_of_it_changed() {
    let fixture = Fixture::new(None);
    fixture.write("one", "llamafarm.yaml", "a");
    assert_eq!(fixture.servers("one").await, ["a"]);
    assert_eq!(fixture.servers("one").await, ["a"]);
    assert_eq!(fixture.reads.load(Ordering::Relaxed), 1);
    fixture.write("one", "llamafarm.yaml", "a b");
    assert_eq!(fixture.servers("one").await, ["a", "b"]);
    fixture.write("one", ".env", "X=1");
    assert_eq!(fixture.servers("one").await, ["a", "b"]);
    assert_eq!(fixture.reads.load(Ordering::Relaxed), 3);
    let file = fixture.path("one", "llamafarm.yaml");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(fixture.servers("one").await, ["a", "b"], "another directory may be about to take its name");
    assert!(matches!(fixture.gone("one").await, Refusal::UnknownProject(name) if name == "ns/one"));
}

#[tokio::test]
async fn a_project_whose_file_is_missing_for_a_while_is_as_it_was_and_keeps_its_sessions() {
    let fixture = Fixture::new(None);
    fixture.write("one", "llamafarm.yaml", "a");
    fixture.use_all(&fixture.projects.find("ns", "one").await.unwrap()).await;
    let (key, file) = (fixture.key("one"), fixture.path("one", "llamafarm.yaml"));
    let look = async || fixture.looked(&key).await;
    std::fs::remove_file(&file).unwrap();
    assert_eq!(look().await, Look::Refused);
    assert_eq!(look().await, Look::Same);
    // what a link leads to is nobody's project
    let elsewhere = fixture.directory.path().join("elsewhere.yaml");
    std::fs::write(&elsewhere, "other").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    assert!(matches!(look().await, Look::Same | Look::Refused));
    assert_eq!(fixture.servers("one").await, ["a"]);
    assert!(fixture.has_session("a"));
    std::fs::remove_file(&file).unwrap();
    fixture.write("one", "llamafarm.yaml", "a b");
    assert_eq!(look().await, Look::Taken);
    assert_eq!(fixture.servers("one").await, ["a", "b"]);
    assert!(fixture.has_session("a"));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(look().await, Look::Refused);
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    assert_eq!(look().await, Look::Gone);
}

/// Minutes go by while the look at the main file does not end.
#[tokio::test(start_paused = true)]
async fn a_main_file_that_cannot_be_looked_at_keeps_nobody_from_the_stored_projects() {
    let (let_go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let loader: Loader = Box::new(move |path| {
        if path.ends_with("main/llamafarm.yaml") {
            let _ = held.lock().unwrap().recv();
        }
        Ok(project("").into())
    });
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("main")).unwrap();
    let path = directory.path().join("main/llamafarm.yaml");
    std::fs::write(&path, "").unwrap();
    let main = Opened { path: Some(path), ..project("").into() };
    let fixture = Fixture::with_loader(Some(main), loader);
    let watching = crate::reload::watch(fixture.projects.clone(), Arc::default());
    tokio::pin!(watching);
    for _ in 0..300 {
        // the threads of the looks get to where they are held
        std::thread::sleep(Duration::from_millis(1));
        tokio::select! {
            biased;
            () = &mut watching => panic!("it watches for ever"),
            () = tokio::time::advance(Duration::from_secs(1)) => {}
        }
    }
    fixture.write("fast", "llamafarm.yaml", "");
    let found = fixture.projects.find("ns", "fast");
    tokio::pin!(found);
    let begun = std::time::Instant::now();
    let found = loop {
        if let Some(found) = (&mut found).now_or_never() {
            break found;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "there is no room to read");
        tokio::task::yield_now().await;
    };
    assert_eq!(found.unwrap().name, "fast");
    drop(let_go);
}

#[tokio::test]
async fn sessions_of_servers_that_left_their_last_project_are_taken_down() {
    let fixture = Fixture::new(Some(project("of_main")));
    fixture.write("one", "llamafarm.yaml", "left shared of_main stays");
    fixture.write("two", "llamafarm.yaml", "shared");
    fixture.servers("two").await;
    let one = fixture.projects.find("ns", "one").await.unwrap();
    fixture.use_all(&one).await;
    assert!(["left", "shared", "of_main", "stays"].iter().all(|name| fixture.has_session(name)));
    fixture.write("one", "llamafarm.yaml", "stays");
    assert_eq!(fixture.servers("one").await, ["stays"]);
    assert!(!fixture.has_session("left"), "nobody has it any more");
    assert!(["shared", "of_main", "stays"].iter().all(|name| fixture.has_session(name)));
    std::fs::remove_dir_all(fixture.path("one", "")).unwrap();
    fixture.gone("one").await;
    assert!(!fixture.has_session("stays"), "its project is gone");
}

#[tokio::test]
async fn a_project_that_is_slow_to_read_holds_up_nobody_else() {
    let (let_go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let loader: Loader = Box::new(move |path| {
        if path.ends_with("slow/llamafarm.yaml") {
            held.lock().unwrap().recv().unwrap();
        }
        Ok(project("").into())
    });
    let fixture = Fixture::with_loader(None, loader);
    fixture.write("slow", "llamafarm.yaml", "");
    fixture.write("fast", "llamafarm.yaml", "");
    let slow = fixture.projects.find("ns", "slow");
    tokio::pin!(slow);
    tokio::select! {
        biased;
        _ = &mut slow => panic!("it is held"),
        fast = fixture.projects.find("ns", "fast") => assert!(fast.is_ok()),
    }
    let_go.send(()).unwrap();
    assert_eq!(slow.await.unwrap().name, "slow");
}
