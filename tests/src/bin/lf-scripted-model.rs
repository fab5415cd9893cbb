//! A scripted upstream that speaks OpenAI Chat Completions and Responses, Anthropic Messages, Gemini and Ollama, each at
//! its usual path: `lf-scripted-model FILE [ADDRESS]`. FILE holds a JSON list of replies, which are given one per request
//! and then from the first again; see `Reply::from_json` for what one can say. The first line on stdout is the `base_url`
//! of the OpenAI APIs; the others are beside its `/v1`. Then each request is shown. Ends with its stdin.

use std::io::Read;

use anyhow::Context;
use lf_tests::scripted_model::{Reply, ScriptedModel};
use serde_json::Value;

#[expect(clippy::print_stdout, reason = "what it is asked for")]
fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("usage: lf-scripted-model FILE [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read `{path}`"))?;
    let entries: Vec<Value> = serde_json::from_str(&text).context("the script is no list")?;
    anyhow::ensure!(!entries.is_empty(), "the script is empty");
    let model = ScriptedModel::start_at(&address, move |number, request| {
        println!("{request:#}");
        Some(Reply::from_json(&entries[number % entries.len()]))
    });
    println!("{}", model.base_url());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
