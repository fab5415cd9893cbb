//! Writes requests to Responses upstreams.

use lf_core::model::ToolSpec;
use lf_core::{ModelError, ModelRequest};
use serde_json::{Map, Value};

use super::{RESPONSES_ONLY, request_input, request_parameters};
use crate::schema;
use crate::upstream::parameters::{out_of_place_beside, with_schema};
use crate::upstream::{Encoded, UpstreamOptions, is_reserved};

/// The body of `POST …/responses`. Equal requests give equal bytes. Nothing is stored at the upstream unless the request
/// says so: the whole conversation is sent each time, with the reasoning of earlier rounds sealed as it came.
///
/// # Errors
/// [`ModelError::Unsupported`] for content and parameters that the API has no place for.
pub(crate) fn encode(
    model: &str,
    request: &ModelRequest,
    options: &UpstreamOptions,
) -> Result<Encoded, ModelError> {
    let left_out = out_of_place_beside(request, RESPONSES_ONLY);
    let mut encoded = Encoded { left_out, ..Encoded::default() };
    encoded.fields.insert("model".to_owned(), model.into());
    let mut input = request_input::input(request)?;
    if options.message_ids {
        request_input::give_ids(&mut input);
    }
    encoded.fields.insert("input".to_owned(), Value::Array(input));
    request_parameters::write(model, request, &mut encoded)?;
    Ok(encoded)
}

/// What a client of the same dialect sent beyond the core's values, or what an answer left to be sent back.
pub(super) fn kept(rest: &Map<String, Value>) -> Option<&Map<String, Value>> {
    rest.get(RESPONSES_ONLY)?.as_object()
}

pub(crate) fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    with_schema(specs).map(tool).collect()
}

fn tool(spec: &ToolSpec) -> Value {
    let mut tool = Map::new();
    tool.insert("type".to_owned(), "function".into());
    tool.insert("name".to_owned(), spec.name.as_str().into());
    if let Some(description) = &spec.description {
        tool.insert("description".to_owned(), description.as_ref().into());
    }
    tool.insert("parameters".to_owned(), schema::openai_parameters(spec));
    // Silence means strict here, which most schemas do not fit; in Chat Completions it means the contrary.
    let strict = spec.rest.get("strict") == Some(&Value::Bool(true));
    tool.insert("strict".to_owned(), strict.into());
    let further = spec.rest.iter().filter(|(key, _)| *key != "strict" && !is_reserved(key));
    let own = kept(&spec.rest).into_iter().flatten();
    tool.extend(further.chain(own).map(|(key, value)| (key.clone(), value.clone())));
    tool.into()
}
