use lf_core::principal::Reach;
use lf_core::project::Provider;

use super::*;

fn principal(scopes: &[Scope], reach: Reach) -> Arc<Principal> {
    Arc::new(Principal { id: "k".to_owned(), name: "k".to_owned(), scopes: scopes.to_vec(), reach })
}

fn tool(server: &str, name: &str) -> ToolRef {
    ToolRef { server: server.into(), name: name.into() }
}

fn access() -> Arc<Access> {
    Arc::new(Access::new(std::path::Path::new("/nowhere")))
}

#[test]
fn a_call_runs_only_when_the_key_and_the_model_both_reach_it() {
    let tools = Some(vec!["a/read_*".to_owned(), "b".to_owned()]);
    let asks = principal(&[Scope::Chat], Reach { tools, ..Reach::default() });
    let mut model = Model::new("m", Provider::Demo, "m", "");
    model.servers = vec!["a".to_owned(), "c".to_owned()];
    let authority = Authority::of(access(), asks).through(&model);
    assert!(authority.may_run(&tool("a", "read_file")).is_ok());
    for (server, name) in [("a", "write_file"), ("b", "read_file"), ("c", "read_file"), ("a__read_", "x")] {
        assert!(authority.may_run(&tool(server, name)).is_err(), "{server} {name}");
    }
    model.servers = Vec::new();
    let none = Authority::of(access(), Arc::new(Principal::owner())).through(&model);
    assert!(none.may_run(&tool("a", "read_file")).is_err(), "an empty list is none");
}

#[test]
fn a_key_that_is_gone_runs_nothing() {
    let gone = Principal { id: "key:1".to_owned(), ..Principal::owner() };
    let authority = Authority::of(access(), Arc::new(gone));
    assert!(authority.may_run(&tool("a", "x")).unwrap_err().contains("revoked"));
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
