use super::*;

fn loose(line: &str) -> Option<String> {
    let mut words = line.split(' ').map(str::to_owned);
    let command = words.next().unwrap();
    loose_package(&command, &words.collect::<Vec<_>>()).map(|(package, _)| package)
}

#[test]
fn a_package_without_one_version_is_loose() {
    for (line, package) in [
        ("npx -y @modelcontextprotocol/server-filesystem /tmp", "@modelcontextprotocol/server-filesystem"),
        ("npx server", "server"),
        ("/usr/bin/npx --yes server@latest", "server@latest"),
        ("npx -y server@^1.2.3", "server@^1.2.3"),
        ("npx -y server@1.2", "server@1.2"),
        ("npx -y server@1", "server@1"),
        ("npx -y @scope/server@next", "@scope/server@next"),
        ("npx -y -p one@1.0.0 -p two three", "two"),
        ("npx --package=one three", "one"),
        ("npx --registry https://r.test server", "server"),
        ("npx -y github:owner/repository", "github:owner/repository"),
        ("npx.cmd server", "server"),
        ("bunx server", "server"),
        ("uvx mcp-server-git --repository /x", "mcp-server-git"),
        ("uvx mcp-server-git@latest", "mcp-server-git@latest"),
        ("uvx mcp-server-git>=1.0", "mcp-server-git>=1.0"),
        ("uvx --from mcp-server mcp", "mcp-server"),
        ("uvx --python 3.12 server", "server"),
        ("uvx --with numpy server==1.0", "numpy"),
        ("uvx --from git+https://x.test/r@main server", "git+https://x.test/r@main"),
    ] {
        assert_eq!(loose(line).as_deref(), Some(package), "{line}");
    }
}

#[test]
fn a_version_a_path_a_commit_and_other_programs_are_not() {
    for line in [
        "npx -y @modelcontextprotocol/server-filesystem@2025.8.21 /tmp",
        "npx -y server@1.2.3",
        "npx -y server@1.2.3-beta.1",
        "npx -y ./server",
        "npx -p one@1.0.0 three",
        "npx -y github:owner/repository#0123456789abcdef0123456789abcdef01234567",
        "npx",
        "uvx mcp-server-git==1.0",
        "uvx mcp-server-git@1.0.4 --repository x",
        "uvx --from mcp-server==2.1 mcp",
        "uvx --from git+https://x.test/r@0123456789abcdef0123456789abcdef01234567 server",
        "uvx --from /src/server server",
        "node server.js",
        "lf files .",
        "docker run image",
    ] {
        assert_eq!(loose(line), None, "{line}");
    }
}

#[test]
fn what_to_write_instead_keeps_the_name() {
    let written = |command: &str, package: &str| loose_package(command, &[package.to_owned()]).unwrap().1;
    assert_eq!(written("npx", "@scope/server@latest"), "@scope/server@1.2.3");
    assert_eq!(written("npx", "server"), "server@1.2.3");
    assert_eq!(written("uvx", "server>=1"), "server==1.2.3");
}
