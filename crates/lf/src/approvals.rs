//! `lf approvals`: what waits for a person in a running daemon.

use serde_json::json;

use crate::args::{Approvals, ApprovalsCommand};
use crate::exit::{Exit, Trouble, print, print_line};
use crate::log::printable;
use crate::remote::{HERE, Remote};

pub(crate) async fn run(approvals: &Approvals) -> Result<Exit, Trouble> {
    let server = approvals.server.as_deref().unwrap_or(HERE);
    let remote = Remote::new(server, None)?;
    let (id, body) = match approvals.command.as_ref().unwrap_or(&ApprovalsCommand::List) {
        ApprovalsCommand::List => return list(&remote, approvals.json).await,
        ApprovalsCommand::Approve { id, always } => {
            (id, json!({"decision": if *always { "always" } else { "approve" }, "by": BY}))
        }
        ApprovalsCommand::Deny { id, reason } => {
            (id, json!({"decision": "deny", "by": BY, "reason": reason}))
        }
    };
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(Trouble::usage(format!("`{}` is no id of an approval", printable(id)))
            .hint("`lf approvals` lists what waits"));
    }
    let answer = remote.post_json(&format!("/approvals/{id}"), &body).await?;
    match approvals.json {
        true => print_line(answer)?,
        false => print(format!("{}: {}\n", printable(id), answer["status"].as_str().unwrap_or_default()))?,
    }
    Ok(Exit::Success)
}

/// Characters of arguments in the list; `--json` has all.
const ARGUMENTS: usize = 500;
/// Who decides, in the journal.
const BY: &str = "the person at the command line";

async fn list(remote: &Remote, as_json: bool) -> Result<Exit, Trouble> {
    let answer = remote.get("/approvals").await?;
    if as_json {
        print_line(answer)?;
        return Ok(Exit::Success);
    }
    let waiting = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    if waiting.is_empty() {
        print("nothing waits for an approval\n")?;
    }
    for one in waiting {
        let text = |key: &str| printable(one[key].as_str().unwrap_or_default());
        let arguments = lf_core::visible::start(&one["arguments"].to_string(), ARGUMENTS);
        let line = format!(
            "{}\n  `{}` of MCP server `{}` in {} with {arguments}, until {}\n",
            text("id"),
            text("tool"),
            text("server"),
            text("project"),
            text("expires_at")
        );
        print(&line)?;
        if one["why"].is_string() {
            print(format_args!("  because {}\n", text("why")))?;
        }
    }
    Ok(Exit::Success)
}
