use std::path::PathBuf;

use lf_core::project::{ApprovalOf, ApprovalRule, Hint, HttpServer, Transport};
use lf_core::tool::{Approval, Retries};
use lf_core::tool_set::Target;
use lf_core::{McpServer, ToolRef};
use serde_json::json;

use super::*;

fn tool(name: &str, approval: Approval) -> Tool {
    let id = ToolRef { server: "disk".into(), name: name.into() };
    let mut tool = Tool::new(id, None, Arc::new(json!({"type": "object"})));
    (tool.approval, tool.repeatable, tool.retries) = (approval, true, Some(Retries::default()));
    tool
}

fn catalogue(tools: impl IntoIterator<Item = Tool>) -> Catalogue {
    Catalogue { tools: tools.into_iter().collect(), ..Catalogue::default() }
}

#[test]
fn whether_a_recorded_tool_asks_is_what_the_file_says_now() {
    let http = HttpServer::new("https://mcp.example");
    let mut server = McpServer::new("disk", Transport::Http(http));
    let of = ApprovalOf::Hint(Hint::Destructive);
    server.tools.approval = vec![ApprovalRule { of, approval: Approval::Ask }];
    let project = Project {
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        root: PathBuf::new(),
        servers: [("disk".to_owned(), Ok(Arc::new(server)))].into_iter().collect(),
        models: [].into_iter().collect(),
        default_model: None,
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
        policy: lf_core::policy::Policy::default(),
        prompts: [].into_iter().collect(),
        carried: Vec::new(),
        storage: Ok(Default::default()),
    };
    let recorded = catalogue(["look", "wipe", "write"].map(|name| tool(name, Approval::Auto)));
    let mut now = tool("write", Approval::Ask);
    now.repeatable = false;
    let listed = catalogue([tool("look", Approval::Auto), now]);
    let set = ToolSet::new(&recorded, &[], &[]);
    let set = set.with_tools(|tool| as_the_file_says(tool, &project, &listed));
    let said: Vec<(&str, Approval, bool)> = set
        .iter()
        .filter_map(|(_, target)| match target {
            Target::Source(tool) => Some((&*tool.id.name, tool.approval, tool.repeatable)),
            Target::Client(_) => None,
        })
        .collect();
    assert_eq!(
        said,
        [
            ("look", Approval::Auto, true),
            // the server does not list it: the rule of the file counts
            ("wipe", Approval::Ask, false),
            ("write", Approval::Ask, false),
        ]
    );
}
