use super::*;

fn key(reach: Reach) -> Principal {
    Principal {
        id: "k".to_owned(),
        name: "k".to_owned(),
        scopes: vec![Scope::Chat],
        reach,
        quota: Quota::default(),
    }
}

fn tool(server: &str, name: &str) -> ToolRef {
    ToolRef { server: server.into(), name: name.into() }
}

fn some(globs: &[&str]) -> Option<Vec<String>> {
    Some(globs.iter().map(|glob| (*glob).to_owned()).collect())
}

#[test]
fn no_list_is_everything_and_an_empty_one_is_nothing() {
    let all = key(Reach::default());
    assert!(all.reaches_project("a", "b") && all.reaches_model("m") && all.reaches_tool(&tool("s", "t")));
    let none = key(Reach { projects: some(&[]), models: some(&[]), tools: some(&[]) });
    assert!(!none.reaches_project("a", "b") && !none.reaches_model("m"));
    assert!(!none.reaches_tool(&tool("s", "t")) && !none.reaches_server("s"));
    let broken = key(Reach { projects: some(&["[a/b"]), models: some(&["[m"]), tools: some(&["[s"]) });
    assert!(!broken.reaches_project("a", "b") && !broken.reaches_model("m") && !broken.reaches_server("s"));
    assert!(broken.reach.problem().is_some());
}

#[test]
fn a_glob_of_tools_tells_the_server_from_the_tool() {
    let reader = key(Reach { tools: some(&["fs/read_*", "web", "*/ping"]), ..Reach::default() });
    for (server, name) in [("fs", "read_file"), ("web", "anything/at all"), ("other", "ping")] {
        assert!(reader.reaches_tool(&tool(server, name)), "{server} {name}");
    }
    for (server, name) in
        [("fs", "write_file"), ("fs2", "read_file"), ("other", "read_file"), ("fs/read_", "x")]
    {
        assert!(!reader.reaches_tool(&tool(server, name)), "{server} {name}");
    }
    // `a` with the tool `b__c`, and `a__b` with the tool `c`, are shown alike and are two tools
    let one = key(Reach { tools: some(&["a/b__c"]), ..Reach::default() });
    assert!(one.reaches_tool(&tool("a", "b__c")) && !one.reaches_tool(&tool("a__b", "c")));
}

#[test]
fn a_star_of_projects_stays_within_its_part() {
    let team = key(Reach { projects: some(&["team/*", "home/site"]), ..Reach::default() });
    assert!(team.reaches_project("team", "barn") && team.reaches_project("home", "site"));
    assert!(!team.reaches_project("home", "other") && !team.reaches_project("teams", "barn"));
    let star = key(Reach { projects: some(&["*"]), ..Reach::default() });
    assert!(!star.reaches_project("team", "barn"));
    // what can fit no project is told when a key is made
    let problem = |globs: &[&str]| Reach { projects: some(globs), ..Reach::default() }.problem();
    assert_eq!(problem(&["team/*", "**"]), None);
    assert!(problem(&["team/*", "team"]).unwrap().contains("such as `team/*`"));
    assert!(problem(&["*"]).is_some());
}

#[test]
fn whoever_made_something_sees_it_and_so_does_an_administrator() {
    let one = key(Reach::default());
    assert!(one.sees("k") && !one.sees("") && !one.sees("other"));
    assert!(Principal::owner().sees("k") && Principal::owner().sees(""));
    assert!(Principal::local().sees("") && !Principal::local().sees("owner"));
}

#[test]
fn scopes_are_written_and_read_alike() {
    for scope in Scope::ALL {
        assert_eq!(scope.name().parse(), Ok(scope));
        assert_eq!(serde_json::to_value(scope).unwrap(), scope.name());
    }
    assert!("config".parse::<Scope>().unwrap_err().contains("config:write"));
}
