use lf_core::project::HttpServer;
use lf_core::tool_set::fit_name;

use super::naming::{is_of_template, may_be_of};
use super::*;

fn at(base_url: &str) -> McpServer {
    McpServer::new("self", Transport::Http(HttpServer::new(base_url)))
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

#[test]
fn a_template_stands_for_uris_that_have_its_text_in_order() {
    let is = |uri: &str| is_of_template(uri, "test://template/{id}/data");
    assert!(is("test://template/7/data") && is("test://template/a/b/data"));
    assert!(!is("test://template/7") && !is("test://other/7/data") && !is("x"));
    assert!(
        is_of_template("file:///a/b", "file:///{+path}") && !is_of_template("http://a", "file:///{+path}")
    );
    assert!(is_of_template("a:b", "a:b") && !is_of_template("a:bc", "a:b"));
}
