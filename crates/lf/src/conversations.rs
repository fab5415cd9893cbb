//! `lf conversations …`: what a running daemon keeps, over its HTTP API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::args::{Common, ConversationCommand, Conversations};
use crate::exit::{Exit, Trouble, print, print_line};
use crate::log::printable;
use crate::remote::{HERE, Remote};
use crate::transcript::harmless;

/// Characters of a title in a list.
const TITLE: usize = 60;

pub(crate) async fn run(common: &Common, options: &Conversations) -> Result<Exit, Trouble> {
    let remote = Remote::whole(common, options.at.server.as_deref().unwrap_or(HERE))?;
    let project = options.at.project.as_deref();
    match &options.command {
        ConversationCommand::List { limit } => {
            list(&remote.get(&listing(project, None, *limit)).await?, options.json)?;
        }
        ConversationCommand::Search { words, limit } => {
            let words = words.join(" ");
            list(&remote.get(&listing(project, Some(&words), *limit)).await?, options.json)?;
        }
        ConversationCommand::Show { id } => show(&whole(&remote, id).await?, options.json)?,
        ConversationCommand::Export { id } => {
            print_line(format_args!("{:#}", whole(&remote, id).await?))?;
        }
        ConversationCommand::Rename { id, title } => {
            let body = json!({"title": title});
            let renamed = remote.ask(Method::PATCH, &path_of(id)?, Some(&body)).await.map_err(hinted)?;
            match options.json {
                true => print_line(&renamed["conversation"])?,
                false => print_line(format_args!("{id} is called {}", printable(title)))?,
            }
        }
        ConversationCommand::Delete { id } => {
            remote.ask(Method::DELETE, &path_of(id)?, None).await.map_err(hinted)?;
            match options.json {
                true => print_line(json!({"id": id, "deleted": true}))?,
                false => print_line(format_args!("{id} is forgotten"))?,
            }
        }
    }
    Ok(Exit::Success)
}

/// The route of one conversation.
///
/// # Errors
/// When nothing can be called so.
pub(crate) fn path_of(id: &str) -> Result<String, Trouble> {
    let plain =
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    match plain {
        true => Ok(format!("/conversations/{id}")),
        false => {
            let what = format!("`{}` is no id of a conversation", printable(id));
            Err(hinted(Trouble::usage(what)))
        }
    }
}

fn hinted(trouble: Trouble) -> Trouble {
    trouble.hint("`lf conversations list` tells what there is")
}

/// The route of a list.
pub(crate) fn listing(project: Option<&str>, words: Option<&str>, limit: u32) -> String {
    let mut path = format!("/conversations?limit={limit}");
    for (key, value) in [("project", project), ("search", words)] {
        let Some(value) = value else { continue };
        path.push('&');
        path.push_str(key);
        path.push('=');
        for byte in value.bytes() {
            match byte.is_ascii_alphanumeric() {
                true => path.push(byte.into()),
                false => path.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    path
}

/// A conversation with its messages and tools.
async fn whole(remote: &Remote, id: &str) -> Result<Value, Trouble> {
    let path = path_of(id)?;
    let mut conversation = remote.get(&path).await.map_err(hinted)?;
    let messages = messages(remote, &path).await?;
    let mut tools = remote.get(&format!("{path}/tools")).await?;
    Ok(json!({
        "conversation": conversation["conversation"].take(),
        "messages": messages,
        "enabled_tools": tools["enabled_tools"].take(),
    }))
}

/// All of them, part by part.
async fn messages(remote: &Remote, path: &str) -> Result<Vec<Value>, Trouble> {
    let mut all = Vec::new();
    let mut after = 0;
    loop {
        let mut part = remote.get(&format!("{path}/messages?after={after}")).await?;
        if let Value::Array(messages) = part["messages"].take() {
            all.extend(messages);
        }
        match part["next_after"].as_i64().filter(|next| *next > after) {
            Some(next) => after = next,
            None => return Ok(all),
        }
    }
}

fn list(found: &Value, json: bool) -> Result<(), Trouble> {
    let conversations = found["conversations"].as_array().map_or(&[][..], Vec::as_slice);
    if json {
        return print_line(json!({"conversations": conversations, "total": conversations.len()}));
    }
    for one in conversations {
        let text = |key: &str| printable(one[key].as_str().unwrap_or_default());
        let title: String = text("title").chars().take(TITLE).collect();
        print_line(format_args!("{}  {}  {title}", text("id"), text("updated_at")))?;
    }
    if conversations.is_empty() {
        anstream::eprintln!("no conversation; `lf chat --conversation new` begins one");
    }
    Ok(())
}

fn show(whole: &Value, json: bool) -> Result<(), Trouble> {
    if json {
        return print_line(whole);
    }
    let about = &whole["conversation"];
    let title = about["title"].as_str().map(|title| format!(" ({})", printable(title))).unwrap_or_default();
    print_line(format_args!("{}{title}", printable(about["id"].as_str().unwrap_or_default())))?;
    if let Some(system) = about["system_prompt"].as_str() {
        print_line(format_args!("\nsystem\n{}", harmless(system)))?;
    }
    for message in whole["messages"].as_array().into_iter().flatten() {
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        let of = message["name"].as_str().map(|name| format!(" {}", printable(name))).unwrap_or_default();
        print_line(format_args!("\n{}{of}  {}  {}", text("role"), text("timestamp"), text("id")))?;
        if !text("content").is_empty() {
            print_line(harmless(text("content")).trim_end())?;
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let part = |key: &str| printable(call["function"][key].as_str().unwrap_or_default());
            print(format_args!("→ {} {}\n", part("name"), part("arguments")))?;
        }
    }
    Ok(())
}
