//! How access to a server is got.

use insta::assert_snapshot;

use crate::tests::diagnose;

#[test]
fn mistakes_in_how_access_is_got_are_told_where_they_are() {
    assert_snapshot!(diagnose(r#"mcp:
  servers:
    - {name: a, transport: http, base_url: https://a.example, auth: {type: oath}}
    - {name: b, transport: http, base_url: https://b.example, auth: {client_id: x}}
    - {name: c, transport: http, base_url: https://c.example, auth: {type: bearer}}
    - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [a]}}
    - {name: e, transport: http, base_url: https://e.example, headers: {authorization: x}, auth: {type: oauth}}
    - name: f
      transport: http
      base_url: https://f.example
      auth:
        type: oauth
        client_secret: hidden-value
        token: other-hidden-value
        token_endpoint_auth_method: private_key_jwt
        scopes: [read write]
        redirect_port: 8400
        redirect_uri: https://f.example/callback
        client_metadata_url: http://f.example
        issuer: f.example
    - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: abc}}
    - {name: h, transport: stdio, command: x, auth: {type: oauth}}
"#), @"
    error: `type` cannot be `oath`
     --> llamafarm.yaml:6:76
      |
    6 |     - {name: a, transport: http, base_url: https://a.example, auth: {type: oath}}
      |                                                                            ^^^^ expected `oauth`, `client_credentials`, `bearer`
      |
    hint: did you mean `oauth`?

    error: this auth has no `type`
     --> llamafarm.yaml:7:70
      |
    7 |     - {name: b, transport: http, base_url: https://b.example, auth: {client_id: x}}
      |                                                                      ^^^^^^^^^ in this entry

    error: `auth` has no `token`
     --> llamafarm.yaml:8:70
      |
    8 |     - {name: c, transport: http, base_url: https://c.example, auth: {type: bearer}}
      |                                                                      ^^^^ in this entry
      |
    hint: `type: bearer` sends it: `token: ${env:API_TOKEN}`

    error: `auth` has no `client_id`
     --> llamafarm.yaml:9:70
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                      ^^^^ in this entry
      |
    hint: `type: client_credentials` is for a client that is registered

    error: `auth` has no `client_secret`
     --> llamafarm.yaml:9:70
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                      ^^^^ in this entry
      |
    hint: give it, or `private_key`: the client proves with it who it is

    error: this auth has an unknown key `scope`
     --> llamafarm.yaml:9:96
      |
    9 |     - {name: d, transport: http, base_url: https://d.example, auth: {type: client_credentials, scope: [*]}}
      |                                                                                                ^^^^^ not a key of this entry
      |
    hint: did you mean `scopes`?

    warning: `Authorization` in `headers` is not sent: `auth` gets the token
      --> llamafarm.yaml:10:73
       |
    10 |     - {name: e, transport: http, base_url: https://e.example, headers: {authorization: *}, auth: {type: oauth}}
       |                                                                         ^^^^^^^^^^^^^ has no effect
       |
    hint: keep one of the two

    error: `client_secret` without `client_id` belongs to nobody
      --> llamafarm.yaml:16:9
       |
    16 |         client_secret: ************
       |         ^^^^^^^^^^^^^
       |
    hint: give the `client_id` of the registration too

    warning: `token` has no effect with `type: oauth`
      --> llamafarm.yaml:17:9
       |
    17 |         token: ******************
       |         ^^^^^

    error: this `token_endpoint_auth_method` needs `private_key`
      --> llamafarm.yaml:18:37
       |
    18 |         token_endpoint_auth_method: private_key_jwt
       |                                     ^^^^^^^^^^^^^^^ nothing to prove it with

    error: `read write` cannot be a scope
      --> llamafarm.yaml:19:18
       |
    19 |         scopes: [**********]
       |                  ^^^^^^^^^^
       |
    hint: write them one by one: `scopes: [read, write]`

    error: `redirect_port` and `redirect_uri` are two places to come back to
      --> llamafarm.yaml:20:9
       |
    20 |         redirect_port: 8400
       |         ^^^^^^^^^^^^^
       |
    hint: keep one: the port stands for `http://127.0.0.1:PORT/callback`

    error: `client_metadata_url` is not a URL that can be used here
      --> llamafarm.yaml:22:30
       |
    22 |         client_metadata_url: http://f.example
       |                              ^^^^^^^^^^^^^^^^
       |
    hint: an `https` URL of a document that describes this client

    error: `issuer` is not a URL that can be used here
      --> llamafarm.yaml:23:17
       |
    23 |         issuer: f.example
       |                 ^^^^^^^^^
       |
    hint: an `https` URL, exactly as the authorization server names itself

    error: `redirect_uri` is no place on this machine
      --> llamafarm.yaml:24:97
       |
    24 |     - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: ***}}
       |                                                                                                 ^^^^^^^^^^^^^^^^^^
       |
    hint: such as `http://127.0.0.1:8400/callback`: http, without a query

    error: `private_key` is no PEM that begins with `-----BEGIN PRIVATE KEY-----`
      --> llamafarm.yaml:24:130
       |
    24 |     - {name: g, transport: http, base_url: https://g.example, auth: {type: oauth, redirect_uri: 'http://0.0.0.0/x', private_key: ***}}
       |                                                                                                                                  ^^^
       |
    hint: `openssl pkcs8 -topk8 -nocrypt -in KEY.pem` makes one of other keys

    warning: `auth` has no effect with transport `stdio`
      --> llamafarm.yaml:25:47
       |
    25 |     - {name: h, transport: stdio, command: x, auth: {type: oauth}}
       |                                               ^^^^
    ");
}

#[test]
fn every_way_to_get_access_can_be_written_down() {
    assert_snapshot!(diagnose(r#"runtime: {models: [{name: demo, provider: demo}]}
mcp:
  servers:
    - {name: a, transport: http, base_url: https://a.example, auth: {type: bearer, token: '${TOKEN:-abc}'}}
    - {name: b, transport: sse, base_url: https://b.example, auth: {type: oauth}}
    - {name: c, transport: http, base_url: https://c.example, auth: {type: oauth, client_id: me, client_secret: '${SECRET:-x}', redirect_uri: 'http://localhost:3000/callback', issuer: https://id.example/tenant, scopes: [a, 'b:c']}}
    - {name: d, transport: http, base_url: https://d.example, auth: {type: oauth, client_metadata_url: https://x.example/client.json, redirect_port: 8400}}
    - {name: e, transport: http, base_url: https://e.example, auth: {type: client_credentials, client_id: me, client_secret: x, token_endpoint_auth_method: client_secret_post}}
"#), @"");
}
