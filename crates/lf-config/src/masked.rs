//! Secrets that stand in a file as they are: shown as a mask, and put back when the mask comes back.

use serde_json::Value as Json;

use crate::show::{MASK, mask_all};

/// Where what a secret is for is decided: with another of these, the secret would go to somebody else.
const DESTINATION: [&str; 5] = ["base_url", "provider", "transport", "command", "issuer"];

/// Takes out what is or may be a secret; references such as `${env:NAME}` name one and stay.
pub fn mask(value: &mut Json) {
    mask_all(value, "");
}

/// Puts what is stored in the place of its mask.
///
/// # Errors
/// The path of a mask that stands for nothing that is stored, or whose entry now goes to another destination.
pub fn unmask(wanted: &mut Json, stored: &Json) -> Result<(), String> {
    let mut masked = stored.clone();
    mask(&mut masked);
    restore(wanted, Some((stored, &masked)), "")
}

fn restore(wanted: &mut Json, was: Option<(&Json, &Json)>, path: &str) -> Result<(), String> {
    match wanted {
        Json::String(text) if text.contains(MASK) => match was {
            Some((stored, Json::String(masked))) if masked == text => {
                *wanted = stored.clone();
                Ok(())
            }
            // it is stored like this
            Some((Json::String(stored), _)) if stored == text => Ok(()),
            _ => Err(path.to_owned()),
        },
        Json::Object(map) => {
            let moved =
                was.is_some_and(|(_, masked)| DESTINATION.iter().any(|key| masked.get(key) != map.get(*key)));
            for (key, value) in map.iter_mut() {
                let inner = was
                    .filter(|_| !moved)
                    .and_then(|(stored, masked)| Some((stored.get(key)?, masked.get(key)?)));
                restore(value, inner, &format!("{path}.{key}"))?;
            }
            Ok(())
        }
        Json::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let inner = was.and_then(|(stored, masked)| {
                    let (stored, masked) = (stored.as_array()?, masked.as_array()?);
                    let found = find(item, masked, at)?;
                    Some((stored.get(found)?, masked.get(found)?))
                });
                restore(item, inner, &format!("{path}[{at}]"))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Which stored item this one was: the one of its name, or the equal one, or else the one of its place.
fn find(item: &Json, masked: &[Json], at: usize) -> Option<usize> {
    if item["name"].is_string() {
        return masked.iter().position(|other| other["name"] == item["name"]);
    }
    if masked.get(at) == Some(item) {
        return Some(at);
    }
    masked.iter().position(|other| other == item).or(Some(at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mask_that_comes_back_keeps_the_secret() {
        let stored =
            json!({"runtime": {"models": [{"name": "a", "base_url": "http://x", "api_key": "sk-1"}]}});
        let mut shown = stored.clone();
        mask(&mut shown);
        assert_eq!(shown["runtime"]["models"][0]["api_key"], MASK);
        shown["runtime"]["models"][0]["description"] = json!("new");
        unmask(&mut shown, &stored).unwrap();
        assert_eq!(shown["runtime"]["models"][0]["api_key"], "sk-1");
    }

    #[test]
    fn a_secret_does_not_follow_its_entry_to_another_destination() {
        let stored = json!({"models": [{"name": "a", "base_url": "http://x", "api_key": "sk-1"}]});
        let mut moved = json!({"models": [{"name": "a", "base_url": "http://evil", "api_key": MASK}]});
        assert_eq!(unmask(&mut moved, &stored).unwrap_err(), ".models[0].api_key");
        let mut other = json!({"models": [{"name": "b", "base_url": "http://x", "api_key": MASK}]});
        assert!(unmask(&mut other, &stored).is_err());
    }
}
