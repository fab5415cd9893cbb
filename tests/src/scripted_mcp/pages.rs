//! Listing tools, in pages.

use std::sync::Arc;

use serde_json::{Value, json};

use super::script::{Act, ScriptedTool};
use super::{Server, tools};

impl Server {
    pub(super) fn all_tools(&self) -> Vec<ScriptedTool> {
        let mut all = self.script.tools.clone();
        all.extend(
            (0..self.script.count).map(|number| ScriptedTool::new(&format!("tool_{number:03}"), Act::Echo)),
        );
        if self.has_changed() {
            all.push(ScriptedTool::new("late", Act::Echo));
        }
        for said in self.says("tools").as_array().into_iter().flatten() {
            let name = said["name"].as_str().unwrap_or_default();
            if !all.iter().any(|tool| tool.name == name) {
                all.push(ScriptedTool::new(name, Act::Echo));
            }
        }
        all
    }

    /// What the file has for it that it is to say; `null` where there is nothing.
    pub(super) fn says(&self, key: &str) -> Value {
        let Some(text) = self.script.says.as_ref().and_then(|path| std::fs::read_to_string(path).ok()) else {
            return Value::Null;
        };
        let mut said: Value = serde_json::from_str(&text).expect("what it is to say is JSON");
        said[key].take()
    }

    pub(super) async fn list(self: &Arc<Self>, params: &Value) -> Result<Value, (i64, String)> {
        if let Some(gate) = &self.script.list_gate {
            tools::file_exists(gate).await;
        }
        let all: Vec<Value> = match self.says("tools") {
            Value::Array(said) => said,
            _ => self.all_tools().iter().map(ScriptedTool::declaration).collect(),
        };
        if self.script.page_size == 0 && !self.script.endless_pages {
            return Ok(json!({"tools": all}));
        }
        let size = self.script.page_size.max(1);
        let start: usize = match params["cursor"].as_str() {
            None => 0,
            Some("again") => 0,
            Some(cursor) => cursor.parse().map_err(|_| (-32602, format!("unknown cursor {cursor}")))?,
        };
        let page: Vec<&Value> = if self.script.endless_pages {
            all.iter().cycle().skip(start % all.len().max(1)).take(size).collect()
        } else {
            all.iter().skip(start).take(size).collect()
        };
        let mut result = json!({"tools": page});
        if self.script.same_cursor {
            result["nextCursor"] = json!("again");
        } else if self.script.endless_pages || start + size < all.len() {
            result["nextCursor"] = json!((start + size).to_string());
        }
        Ok(result)
    }
}
