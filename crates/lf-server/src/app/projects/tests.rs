use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::SystemTime;

use indexmap::IndexMap;
use lf_core::McpServer;
use lf_core::project::{StdioServer, Transport};
use lf_mcp::{PoolOptions, ServerState};

use super::*;
use crate::app::Broken;

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
        Self { reads, ..Self::with_loader(main, loader) }
    }

    fn with_loader(main: Option<Project>, loader: Loader) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pool = SessionPool::new(PoolOptions::new(Vec::new(), PathBuf::from("lf")));
        let main = main.map(Into::into);
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
    std::fs::remove_file(fixture.path("one", "llamafarm.yaml")).unwrap();
    assert_eq!(fixture.servers("one").await, ["a", "b"], "another file may be about to take its name");
    assert!(matches!(fixture.gone("one").await, Refusal::UnknownProject(name) if name == "ns/one"));
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
    std::fs::remove_file(fixture.path("one", "llamafarm.yaml")).unwrap();
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
