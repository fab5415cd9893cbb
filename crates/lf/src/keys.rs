//! `lf keys`: who may use the daemon of this data directory, and for what.

use std::time::{SystemTime, UNIX_EPOCH};

use lf_core::Principal;
use lf_core::audit::{Event, Record};
use lf_core::principal::Reach;
use lf_core::quota::Quota;
use lf_server::access::{Key, Keys, KeysError, NewKey};
use lf_server::audit::Audit;
use serde_json::{Value, json};

use crate::args::{self, Common};
use crate::audit;
use crate::exit::{Exit, Trouble, print_line};
use crate::log::printable;
use crate::project;

pub(crate) fn run(common: &Common, command: &args::Keys) -> Result<Exit, Trouble> {
    let data_dir = project::data_dir(common);
    let keys = Keys::at(&data_dir);
    // before anything changes: what cannot be on record is not done
    let on_record = || audit::open(&data_dir);
    match command {
        args::Keys::Create(new) => create(&keys, new, &*on_record()?)?,
        args::Keys::List { json } => list(&keys.list()?, *json)?,
        args::Keys::Revoke { key } => {
            let audit = on_record()?;
            let gone = keys.revoke(key)?;
            audit.record(record(&gone, "revoked"));
            anstream::eprintln!("revoked {} ({})", printable(&gone.name), gone.id);
        }
    }
    Ok(Exit::Success)
}

/// Which key a name meant then, and what it let do.
fn record(key: &Key, outcome: &'static str) -> Record {
    let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
    let detail =
        format!("key:{} {}: {}{}", key.id, key.name, scopes.join(","), reach(key, ToOwned::to_owned));
    let until = key.expires.map(|end| format!("  expires {end}")).unwrap_or_default();
    let record = Record { outcome: Some(outcome), ..Record::new(Event::Key) }.of(&Principal::owner());
    record.detail(&format!("{detail}{until}"))
}

fn create(keys: &Keys, new: &args::NewKey, audit: &Audit) -> Result<(), Trouble> {
    // `--tool ''` is an empty list
    let globs = |list: &Option<Vec<String>>| {
        let list = list.as_ref()?;
        Some(list.iter().filter(|glob| !glob.is_empty()).cloned().collect::<Vec<_>>())
    };
    let wanted = NewKey {
        name: new.name.clone(),
        scopes: new.scopes.clone(),
        reach: Reach { projects: globs(&new.projects), models: globs(&new.models), tools: globs(&new.tools) },
        quota: Quota {
            requests_per_minute: new.requests_per_minute,
            tokens_per_day: new.tokens_per_day,
            cost_per_day_usd: new.cost_per_day,
        },
        lasts: new.expires,
    };
    let (key, text) = keys.create(wanted)?;
    audit.record(record(&key, "created"));
    if new.json {
        let mut made = shown(&key);
        made["key"] = text.into();
        return print_line(made);
    }
    anstream::eprintln!("key {} ({}); it is not shown again:", printable(&key.name), key.id);
    print_line(text)
}

fn list(keys: &[Key], as_json: bool) -> Result<(), Trouble> {
    if as_json {
        let all: Vec<Value> = keys.iter().map(shown).collect();
        return print_line(json!({"keys": all, "total": all.len()}));
    }
    if keys.is_empty() {
        anstream::eprintln!("no keys; `lf keys create NAME` makes one");
    }
    for key in keys {
        let scopes: Vec<&str> = key.scopes.iter().map(|scope| scope.name()).collect();
        let line = format!("{}  {}  {}", key.id, printable(&key.name), scopes.join(","));
        print_line(line + &reach(key, printable) + &bounds(&key.quota) + &lifetime(key))?;
    }
    Ok(())
}

fn reach(key: &Key, shown: impl Fn(&str) -> String) -> String {
    let Reach { projects, models, tools } = &key.reach;
    let lists = [("projects", projects), ("models", models), ("tools", tools)];
    let lists = lists.into_iter().filter_map(|(what, globs)| Some((what, globs.as_ref()?)));
    lists.map(|(what, globs)| format!("  {what} [{}]", shown(&globs.join(", ")))).collect()
}

fn bounds(quota: &Quota) -> String {
    let bounds = [
        quota.requests_per_minute.map(|limit| format!("  {limit} requests/min")),
        quota.tokens_per_day.map(|limit| format!("  {limit} tokens/day")),
        quota.cost_per_day_usd.map(|limit| format!("  ${limit}/day")),
    ];
    bounds.into_iter().flatten().collect()
}

fn lifetime(key: &Key) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match key.expires.map(|end| end.saturating_sub(now)) {
        None => String::new(),
        Some(0) => "  expired".to_owned(),
        Some(left) if left < 2 * 3600 => format!("  expires in {} min", left / 60),
        Some(left) if left < 2 * 24 * 3600 => format!("  expires in {} h", left / 3600),
        Some(left) => format!("  expires in {} days", left / (24 * 3600)),
    }
}

fn shown(key: &Key) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "projects": key.reach.projects,
        "models": key.reach.models,
        "tools": key.reach.tools,
        "quota": key.quota,
        "created": key.created,
        "expires": key.expires,
        "expired": key.is_expired(),
    })
}

impl From<KeysError> for Trouble {
    fn from(error: KeysError) -> Self {
        let message = printable(&error.to_string());
        match error {
            KeysError::Unusable { .. } => Self::failure(message),
            KeysError::Unknown(_) => Self::usage(message).hint("`lf keys list` tells what there is"),
            KeysError::Wrong(_) | KeysError::Exists(_) => Self::usage(message),
        }
    }
}
