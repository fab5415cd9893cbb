use std::collections::BTreeMap;
use std::path::PathBuf;

use indexmap::IndexMap;
use lf_core::Model;
use lf_core::operator::Grant;
use lf_core::project::{Destination, Provider};

use super::*;

fn carried(variable: &str, origin: &str, asked: Asked) -> Carried {
    let entry = Entry::Model("m".to_owned());
    let to = Destination::Host(origin.to_owned());
    Carried { entry, variable: Some(variable.to_owned()), to, asked, is_set: true, is_told: true }
}

/// With models `m` and `other`, both with a key.
fn project(carried: Vec<Carried>) -> Project {
    let model = |name: &str| {
        let model = Model::new(name, Provider::Openai, "gpt", "https://a.example/v1");
        (name.to_owned(), Ok(Arc::new(Model { api_key: Some("canary".into()), ..model })))
    };
    Project {
        namespace: "team".to_owned(),
        name: "p".to_owned(),
        root: PathBuf::new(),
        servers: IndexMap::new(),
        models: ["m", "other"].into_iter().map(model).collect(),
        default_model: None,
        prompts: IndexMap::new(),
        carried,
        storage: Ok(Default::default()),
        policy: lf_core::policy::Policy::default(),
        quota: lf_core::quota::Quota::default(),
        pins: Arc::default(),
    }
}

fn held(project: &mut Project, operator: &Operator, grants: Option<&[&str]>) -> Option<String> {
    let grants = grants.map(|grants| grants.iter().map(|grant| (*grant).to_owned()).collect());
    Granted { operator, grants: Ok(grants), may_connect: false }.hold_back(project);
    assert!(project.models["other"].is_ok(), "nothing else is disabled");
    project.models["m"].as_ref().err().map(|disabled| disabled.reason.clone())
}

#[test]
fn an_entry_without_a_grant_is_held_back_and_says_what_to_run() {
    let nobody = Operator::default();
    let asks = || project(vec![carried("KEY", "https://evil.example", Asked::Written)]);
    let reason = held(&mut asks(), &nobody, Some(&[])).expect("held back");
    assert_eq!(reason, "variable `KEY` may not go to `https://evil.example`: run `lf config approve team/p`");
    assert_eq!(held(&mut asks(), &nobody, Some(&["KEY -> https://a.example"])).as_ref(), Some(&reason));
    assert_eq!(held(&mut asks(), &nobody, Some(&["KEY -> https://evil.example"])), None);
    assert_eq!(held(&mut asks(), &nobody, None), None, "its file is trusted");
}

#[test]
fn a_key_that_nobody_named_is_left_out_and_the_model_stays() {
    let mut implied = project(vec![carried("OPENAI_API_KEY", "http://10.0.0.1", Asked::Implied)]);
    assert_eq!(held(&mut implied, &Operator::default(), Some(&[])), None);
    assert!(implied.models["m"].as_ref().is_ok_and(|model| model.api_key.is_none()));
    assert!(implied.models["other"].as_ref().is_ok_and(|model| model.api_key.is_some()));
    let mut usual = project(vec![carried("OPENAI_API_KEY", "https://api.openai.com", Asked::Usual)]);
    assert_eq!(held(&mut usual, &Operator::default(), Some(&[])), None);
    assert!(usual.models["m"].as_ref().is_ok_and(|model| model.api_key.is_some()));
}

#[test]
fn the_operator_s_word_counts_before_everything() {
    let grants = vec![Grant::Origin("https://a.example".to_owned())];
    let operator = Operator { secrets: BTreeMap::from([("KEY".to_owned(), grants)]), egress: Vec::new() };
    let mut there = project(vec![carried("KEY", "https://a.example", Asked::Written)]);
    assert_eq!(held(&mut there, &operator, Some(&[])), None);
    for (asked, grants) in [
        (Asked::Written, None),
        (Asked::Usual, None),
        (Asked::Written, Some(&["KEY -> https://b.example"][..])),
    ] {
        let mut elsewhere = project(vec![carried("KEY", "https://b.example", asked)]);
        let reason = held(&mut elsewhere, &operator, grants).expect("held back");
        assert!(reason.contains("operator.yaml"), "{reason}");
    }
    let elsewhere = project(vec![carried("KEY", "https://b.example", Asked::Written)]);
    let granted = Granted { operator: &operator, grants: Ok(Some(Grants::new())), may_connect: false };
    assert!(granted.pending(&elsewhere).is_empty(), "nobody is asked for what the operator forbids");
}

#[test]
fn what_cannot_be_read_approves_nothing() {
    let operator = Operator::default();
    let mut asks = project(vec![carried("KEY", "https://a.example", Asked::Written)]);
    let granted = Granted { operator: &operator, grants: Err("no such".to_owned()), may_connect: false };
    granted.hold_back(&mut asks);
    let reason = asks.models["m"].as_ref().unwrap_err().reason.clone();
    assert!(reason.contains("the approvals cannot be read: no such"), "{reason}");
}
