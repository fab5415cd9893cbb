//! The file that `lf init` writes.

use crate::check::is_name;

/// The file with the schema that editors check against: `lf init` writes it beside the project's.
pub const SCHEMA_FILE: &str = "llamafarm.schema.json";

/// A project that works at once: the built-in demo model with the files of the directory as its tools. A name that
/// cannot be one is replaced by `my-project`, a namespace by `default`.
pub fn init(name: &str, namespace: &str) -> String {
    let name = plain(if is_name(name) { name } else { "my-project" });
    let namespace = plain(if is_name(namespace) { namespace } else { "default" });
    format!(
        "\
# yaml-language-server: $schema=./{SCHEMA_FILE}
version: v1
name: {name}
namespace: {namespace}

mcp:
  servers:
    # The files of this directory, read-only, served by this very program.
    - name: files
      transport: stdio
      command: lf
      args: [files, .]

runtime:
  default_model: demo
  models:
    # Built in; needs no key and no network. Try: lf chat \"which files are there?\"
    - name: demo
      provider: demo
      model: demo
      mcp_servers: [files]

    # A real model, for when OPENAI_API_KEY is set:
    # - name: assistant
    #   provider: openai
    #   model: gpt-4o-mini
    #   mcp_servers: [files]

prompts:
  - name: default
    messages:
      - role: system
        content: |
          You help with the files of this project.
          Use the tools to look things up before you answer.
"
    )
}

/// Quoted where YAML could read the name as something else.
fn plain(name: &str) -> String {
    match crate::node::meaning(name) {
        serde_json::Value::String(_) => name.to_owned(),
        _ => format!("\"{name}\""),
    }
}
