//! A scripted MCP server: `lf-scripted-mcp stdio|http|sse [SCRIPT]`, where SCRIPT is JSON or `@FILE`.
//! Over `http` and `sse` the first line on stdout is its URL.

use lf_tests::scripted_mcp::{Script, serve_network, serve_stdio};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let transport = arguments.next().unwrap_or_else(|| "stdio".to_owned());
    let script: Script = match arguments.next() {
        None => Script::echoing(&["echo"]),
        Some(argument) => match argument.strip_prefix('@') {
            Some(path) => serde_json::from_str(&std::fs::read_to_string(path)?)?,
            None => serde_json::from_str(&argument)?,
        },
    };
    match transport.as_str() {
        "stdio" => serve_stdio(script).await,
        other => serve_network(other, script).await,
    }
}
