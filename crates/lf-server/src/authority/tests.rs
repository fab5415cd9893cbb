use lf_core::policy::Labels;
use lf_core::principal::Reach;
use lf_core::tool::Hints;
use serde_json::Map;

use super::*;
use crate::rules::tests::project;
use crate::rules::{Asked, Facts, Rules, permit};

fn principal(scopes: &[Scope], reach: Reach) -> Arc<Principal> {
    Arc::new(Principal {
        id: "k".to_owned(),
        name: "k".to_owned(),
        scopes: scopes.to_vec(),
        reach,
        ..Principal::local()
    })
}

fn tool(server: &str, name: &str) -> ToolRef {
    ToolRef { server: server.into(), name: name.into() }
}

fn access() -> Arc<Access> {
    Arc::new(Access::new(std::path::Path::new("/nowhere")))
}

#[test]
fn a_call_runs_only_when_the_key_and_the_model_both_reach_it() {
    let tools = Some(vec!["open/read*".to_owned(), "closed".to_owned()]);
    let asks = principal(&[Scope::Chat], Reach { tools, ..Reach::default() });
    let rules = rules(asks);
    assert_eq!(run(&rules, "narrow", "open", "read"), Ok(()));
    assert_eq!(run(&rules, "wide", "closed", "read"), Ok(()));
    for (server, name) in [("open", "list"), ("closed", "read"), ("ghost", "read"), ("open__read", "x")] {
        assert!(run(&rules, "narrow", server, name).is_err(), "{server} {name}");
    }
    let nothing = Reach { tools: Some(Vec::new()), ..Reach::default() };
    let none = self::rules(principal(&[Scope::Chat], nothing));
    assert!(run(&none, "narrow", "open", "read").is_err(), "an empty list is none");
    assert_eq!(
        run(&none, "narrow", "lf:results", "read"),
        Ok(()),
        "what comes with the program is no server's"
    );
}

fn rules(asks: Arc<Principal>) -> Rules {
    let project = Arc::new(project());
    Rules::of(Arc::new(move || Some(project.clone())), Authority::of(access(), asks, Arc::new(Audit::none())))
}

fn run(rules: &Rules, model: &str, server: &str, name: &str) -> Result<(), String> {
    let facts = Facts::alone(tool(server, name), Hints::default(), Labels::default());
    permit(rules, &Asked { model: Some(model), facts: &facts, arguments: &Map::new() })
}

#[test]
fn a_key_that_is_gone_runs_nothing() {
    let gone = Principal { id: "key:1".to_owned(), ..Principal::owner() };
    let rules = rules(Arc::new(gone));
    assert!(run(&rules, "narrow", "open", "read").unwrap_err().contains("revoked"));
    assert!(run(&rules, "narrow", "lf:results", "read").unwrap_err().contains("revoked"));
}

#[test]
fn whoever_is_asked_for_gains_nothing_by_the_door() {
    let own = Reach { tools: Some(vec!["a".to_owned()]), ..Reach::default() };
    let granted = Granted {
        principal: principal(&[Scope::Chat, Scope::ConfigWrite], own.clone()),
        project: ("a".to_owned(), "b".to_owned()),
        models: Some(vec!["m".to_owned()]),
        servers: Vec::new(),
    };
    let told = granted.through(&Principal::owner()).unwrap();
    assert_eq!((told.scopes, told.reach), (vec![Scope::Chat], own));
    let reader = Principal { scopes: vec![Scope::Read], ..Principal::owner() };
    assert!(granted.through(&reader).unwrap().scopes.is_empty());
    let narrow = Reach { tools: Some(vec!["b".to_owned()]), ..Reach::default() };
    assert!(granted.through(&Principal { reach: narrow, ..Principal::owner() }).is_err());
    assert!(granted.reaches_model("m") && !granted.reaches_model("other"));
}

#[test]
fn a_mandate_ends_with_the_turn() {
    let grants = Grants::default();
    let granted = Granted {
        principal: Arc::new(Principal::owner()),
        project: (String::new(), String::new()),
        models: None,
        servers: Vec::new(),
    };
    let mandate = grants.grant(granted).unwrap();
    let token = mandate.token().to_owned();
    assert!(grants.find(&token).is_some() && grants.find("").is_none());
    drop(mandate);
    assert!(grants.find(&token).is_none());
}
