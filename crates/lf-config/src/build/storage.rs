//! Where conversations are kept.

use lf_core::project::{Disabled, Storage};

use crate::build::{Context, Reading, carry};
use crate::diagnostic::Report;
use crate::node::Node;
use crate::variables::{Syntax, expand};

pub(super) fn read(root: &Node, context: &Context<'_>, report: &mut Report<'_>) -> Result<Storage, Disabled> {
    if root.get("storage").is_none() {
        return Ok(Storage::default());
    }
    let keys = [("storage", Syntax::Full)];
    let expanded = expand(root, &keys, "conversations are not kept", context.variables, report);
    let mut reading = Reading::new("`storage`".to_owned(), &expanded, context, report);
    let Some(node) = reading.node("storage") else { return Ok(Storage::default()) };
    let storage = node.as_str().and_then(Storage::parse);
    if storage.is_none()
        && let Some(diagnostic) =
            reading.wrong(node, "`storage` is neither `sqlite` nor the URL of a Postgres database".to_owned())
    {
        diagnostic.hint("a URL looks like `postgres://user:${env:PGPASSWORD}@host:5432/database`");
    }
    if let Some(Storage::Postgres(url)) = &storage {
        carry::by_storage(url.expose(), &expanded.used, context);
    }
    reading.finish(storage.unwrap_or_default())
}
