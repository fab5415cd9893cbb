use std::path::Path;

use crate::{Source, Variables, parse};

#[test]
fn the_resolved_file_shows_defaults_and_no_secret() {
    let text = "version: v1
name: farm
namespace: default
mcp:
  servers:
    - name: fs
      transport: stdio
      command: npx
      args: ['--token', hunter2, '--api-key=hunter3', 'postgres://me:hunter4@db/x', ghp_hunter5hunter5hunter5,
             'Authorization: Bearer hunter14', 'X-Api-Key:hunter15', 'TOKEN=hunter16 run http://u:hunter17@h/?token=hunter18']
      env: {GITHUB_TOKEN: hunter6, NODE_ENV: production}
    - name: api
      transport: http
      base_url: ${env:URL}
      headers: {Authorization: 'Bearer ${env:TOKEN:-hunter8}', X-Key: hunter9}
    - {name: off, transport: http, base_url: '${env:NONE}'}
runtime:
  models:
    - {name: m, provider: openai, model: gpt-4, api_key: hunter10, model_api_parameters: {max_tokens: 5}}
";
    let source = Source { path: "llamafarm.yaml".into(), text: text.to_owned() };
    let variables = Variables::new(None, |name| match name {
        "URL" => Some("https://u:hunter11@api.example/mcp?key=hunter12".to_owned()),
        "TOKEN" => Some("hunter13".to_owned()),
        _ => None,
    });
    let loaded =
        parse(&source, Path::new("/srv/farm"), &variables).unwrap_or_else(|rejected| panic!("{rejected}"));
    let shown = crate::show(&loaded);
    assert!(!shown.contains("hunter"), "{shown}");
    let debugged = format!("{:?}", loaded.project);
    for secret in ["hunter2", "hunter6", "hunter10", "hunter13"] {
        assert!(!debugged.contains(secret), "{secret} in {debugged}");
    }
    insta::assert_snapshot!(shown, @r#"
    # MCP server `off` is not available: variable `NONE` is not set (llamafarm.yaml:16:47)
    version: v1
    name: farm
    namespace: default
    mcp:
      servers:
      - name: fs
        transport: stdio
        command: npx
        args:
        - --token
        - "********"
        - --api-key=********
        - postgres://********@db/x
        - "********"
        - "Authorization: Bearer ********"
        - X-Api-Key:********
        - TOKEN=******** run http://********@h/?token=********
        env:
          GITHUB_TOKEN: "********"
          NODE_ENV: production
        timeout: 30s
        max_timeout: 300s
        startup_timeout: 60s
        required: false
        protocol: auto
        elicitation: defaults
      - name: api
        transport: http
        base_url: https://********@api.example/[secret]
        headers:
          Authorization: Bearer ${env:TOKEN:-********}
          X-Key: "********"
        timeout: 30s
        max_timeout: 300s
        startup_timeout: 60s
        required: false
        protocol: auto
        elicitation: defaults
      - name: "off"
        transport: http
        base_url: ${env:NONE}
    runtime:
      default_model: m
      models:
      - name: m
        provider: openai
        model: gpt-4
        api_key: "********"
        model_api_parameters:
          max_tokens: 5
        base_url: https://api.openai.com/v1
        tool_call_strategy: native_api
        api: chat_completions
        mcp_servers:
        - fs
        - api
        - "off"
        prompts: []
        input:
        - text
        - image
        limits:
          rounds: 10
          parallel_calls: 16
          result_tokens: 25000
          result_bytes: 100000
          turn_timeout: 300s
          final_timeout: 60s
          approval_timeout: 300s
          queue_timeout: 600s
          repeat_calls: 3
    "#);
}

#[test]
fn what_variables_hold_of_a_url_is_not_shown() {
    let text = "version: v1
name: farm
namespace: default
mcp:
  servers:
    - {name: one, transport: http, base_url: 'https://${env:PART}.example/mcp'}
    - {name: two, transport: http, base_url: 'https://api.example/${env:PART}/mcp'}
runtime:
  models:
    - {name: m, provider: universal, model: x, base_url: 'https://api.example/${env:PART}/v1'}
";
    let source = Source { path: "llamafarm.yaml".into(), text: text.to_owned() };
    let variables = Variables::new(None, |name| (name == "PART").then(|| "hunter2hunter2".to_owned()));
    let loaded =
        parse(&source, Path::new("/srv/farm"), &variables).unwrap_or_else(|rejected| panic!("{rejected}"));
    let shown = crate::show(&loaded);
    assert!(!shown.contains("hunter"), "{shown}");
    for url in [
        "https://[secret].example/mcp",
        "https://api.example/[secret]/mcp",
        "https://api.example/[secret]/v1",
    ] {
        assert!(shown.contains(url), "{shown}");
    }
}
