//! The ids of a response's items.

/// Marks ids that no upstream gave: it would refuse one that it does not know.
const OWN: &str = "lf_";

/// The id of the item at `index` of a response; `prefix` is what OpenAI's ids of that kind begin with.
pub(super) fn item_id(prefix: &str, response_id: &str, index: usize) -> String {
    let response = response_id.strip_prefix("resp_").unwrap_or(response_id);
    format!("{prefix}_{OWN}{response}_{index}")
}

pub(super) fn is_own(id: &str) -> bool {
    id.split_once('_').is_some_and(|(_, rest)| rest.starts_with(OWN))
}

/// The id of the response that an item of ours is from; `None` for any other id.
pub fn response_of_item(item_id: &str) -> Option<String> {
    let (_, rest) = item_id.split_once('_')?;
    let (response, index) = rest.strip_prefix(OWN)?.rsplit_once('_')?;
    (!index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("resp_{response}"))
}
