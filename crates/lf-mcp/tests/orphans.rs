//! In a process of its own, because adopting orphans is for the whole process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lf_core::McpServer;
use lf_core::project::{ProcessLimits, StdioServer, Transport};
use lf_core::tool::ToolSource as _;
use lf_mcp::{PoolOptions, SessionPool};

#[tokio::test]
async fn a_daemon_that_forked_twice_is_gone_after_the_last_server_is_stopped() {
    lf_mcp::adopt_orphans();
    // found as an orphan, and found in the control group of its server, where there may be one
    for processes in [None, Some(100)] {
        let directory = tempfile::tempdir().unwrap();
        let limits = ProcessLimits { processes, ..ProcessLimits::default() };
        is_gone_with(limits, directory.path(), std::env::current_exe().unwrap()).await;
    }
}

async fn is_gone_with(limits: ProcessLimits, directory: &Path, program: PathBuf) {
    let pids = directory.join("pids");
    let script = format!("(setsid sh -c 'echo $$ > {0}; exec sleep 1000' &) ; exit 1", pids.display());
    let daemon = StdioServer { limits, ..StdioServer::new("sh", &["-c", &script]) };
    let server = McpServer {
        timeout: Duration::from_secs(5),
        max_timeout: Duration::from_secs(5),
        startup_timeout: Duration::from_secs(20),
        ..McpServer::new("daemon", Transport::Stdio(daemon))
    };
    let pool = SessionPool::new(PoolOptions::new(std::env::vars().collect(), program));
    let tools = pool.tools([("daemon".to_owned(), Ok(Arc::new(server)))]);
    let listed = tools.list(&["daemon".to_owned()]).await;
    assert!(listed.down[0].reason.starts_with("exited with status 1"), "{listed:?}");
    pool.shutdown().await;
    lf_mcp::kill_all();
    let pid = std::fs::read_to_string(&pids).unwrap_or_default();
    let end = Instant::now() + Duration::from_secs(5);
    while !pid.is_empty() && PathBuf::from(format!("/proc/{}", pid.trim())).exists() {
        assert!(Instant::now() < end, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
