use std::time::Duration;

use lf_core::project::{HttpServer, Protocol};

use super::*;

fn at(base_url: &str) -> McpServer {
    McpServer {
        name: "self".to_owned(),
        transport: Transport::Http(HttpServer { base_url: base_url.to_owned(), headers: Vec::new() }),
        tools: Default::default(),
        timeout: Duration::from_secs(1),
        max_timeout: Duration::from_secs(1),
        startup_timeout: Duration::from_secs(1),
        required: false,
        protocol: Protocol::Auto,
    }
}

#[test]
fn a_server_at_our_own_port_of_this_machine_is_ourselves() {
    for url in ["http://localhost:14345/mcp", "http://127.0.0.1:14345/mcp/a/b", "http://[::1]:14345/"] {
        assert!(is_at(&at(url), "127.0.0.1:14345"), "{url}");
    }
    for url in ["http://localhost:14346/mcp", "http://farm.lan:14345/mcp", "no url"] {
        assert!(!is_at(&at(url), "127.0.0.1:14345"), "{url}");
    }
    assert!(is_at(&at("http://farm.lan:14345/mcp"), "farm.lan:14345"));
}

#[test]
fn a_name_tells_which_servers_can_have_it() {
    assert!(may_be_of("fs__list", "fs"));
    assert!(may_be_of("my_files__list", "my.files"));
    assert!(!may_be_of("fs2__list", "fs"));
    let long = "s".repeat(70);
    let exposed = fit_name(&format!("{long}__tool"));
    assert!(may_be_of(&exposed, &long));
}
