//! What names can be made of.

use std::fmt::Write as _;

use lf_tests::project::TestProject;
use serde_json::json;
use walkdir::WalkDir;

use super::NOWHERE;
use super::hostile::{files, raw};

/// Names of every bad kind, each in many forms.
fn names(count: usize) -> Vec<String> {
    let parts = [
        "..",
        ".",
        "...",
        "",
        " ",
        "~",
        "-",
        "_",
        "/",
        "\\",
        "..\\",
        "%2e%2e",
        "%2E%2e",
        "%252e%252e",
        "%2f",
        "%5c",
        "%00",
        "\u{0}",
        "\u{202e}",
        "\u{feff}",
        "\u{ff0e}\u{ff0e}",
        "\u{2024}\u{2024}",
        "\u{2215}",
        "ÅŒ",
        "é",
        "日本",
        "🐄",
        "\u{1b}[2J",
        "\r\n",
        "\t",
        "a",
        "A",
        "con",
        "NUL",
        "aux",
        "com1",
        "CON.yaml",
        "projects",
        "trash",
        "keys.json",
        "owner-token",
        "approvals.json",
        "link",
        "LINK",
        "Link",
        "etc/passwd",
        "/etc/passwd",
        "C:\\",
        "\\\\host\\share",
        "file:",
        "$HOME",
        "${env:HOME}",
        "{{x}}",
        "'",
        "\"",
        ";",
        "|",
        "&",
        "`id`",
        "$(id)",
        "*",
        "?",
        "[a]",
        "<",
        ">",
        "#",
        "@",
        ":",
        ",",
    ];
    let long = "a".repeat(300);
    let mut names = Vec::with_capacity(count);
    let mut seed: usize = 7;
    while names.len() < count {
        let mut name = String::new();
        for _ in 0..1 + seed % 5 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            name.push_str(parts[(seed >> 33) % parts.len()]);
            if (seed >> 20).is_multiple_of(3) {
                name.push('/');
            }
        }
        if names.len().is_multiple_of(97) {
            name.push_str(&long);
        }
        names.push(name);
    }
    names
}

/// As it stands in a path: every byte that is not plain is escaped; of half of the names the dots, too.
fn escaped(name: &str) -> String {
    let has_dots = name.len().is_multiple_of(2);
    name.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'.' if has_dots => text.push('.'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "%{byte:02x}");
            }
        }
        text
    })
}

#[test]
fn ten_thousand_names_lead_nowhere_out_of_the_data_directory() {
    let project = TestProject::with_model(NOWHERE, &[]);
    let outside = project.home().join("outside");
    std::fs::create_dir_all(outside.join("inner")).unwrap();
    std::fs::write(outside.join("inner/llamafarm.yaml"), "version: v1\nname: x\nnamespace: x\n").unwrap();
    let projects = project.data_dir().join("projects");
    std::fs::create_dir_all(projects.join("team")).unwrap();
    // planted: one in place of a namespace, one in place of a project, one in place of a file
    std::os::unix::fs::symlink(&outside, projects.join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("inner"), projects.join("team/link")).unwrap();
    std::fs::create_dir_all(projects.join("team/file")).unwrap();
    std::os::unix::fs::symlink(
        outside.join("inner/llamafarm.yaml"),
        projects.join("team/file/llamafarm.yaml"),
    )
    .unwrap();
    let daemon = project.serve();
    let (outside_before, mine) = (files(&outside), files(project.path()));
    let token = lf_tests::keys::of(&daemon.url("/")).unwrap();
    let config = json!({"config": {"version": "v1"}}).to_string();
    // byte by byte: a client would put paths in order
    let send = |method: &str, path: String, body: &str| -> u16 {
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {token}\r\nconnection: close");
        let kind = "content-type: application/json";
        let answer =
            raw(&daemon, &format!("{head}\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len()));
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    };
    {
        for (number, name) in names(10_000).iter().enumerate() {
            let safe = escaped(name);
            let status = match number % 10 {
                0 => send("PUT", format!("/v1/projects/{safe}/x"), &config),
                1 => send("PUT", format!("/v1/projects/team/{safe}"), &config),
                2 => send("DELETE", format!("/v1/projects/team/{safe}"), ""),
                3 => send("DELETE", format!("/v1/projects/{safe}/inner"), ""),
                4 => send("POST", "/v1/projects/team".to_owned(), &json!({"name": name}).to_string()),
                5 => send("POST", format!("/v1/projects/{safe}"), &json!({"name": "inner"}).to_string()),
                6 => send("GET", format!("/conversations/{safe}/messages"), ""),
                7 => send("DELETE", format!("/conversations/{safe}"), ""),
                8 => send("DELETE", format!("/v1/projects/default/demo/chat/sessions/{safe}"), ""),
                _ => send("POST", "/conversations".to_owned(), &json!({"project": name}).to_string()),
            };
            assert!((200..500).contains(&status), "{status}: {name:?}");
        }
        // the links by their own names
        for (method, path) in [
            ("GET", "/v1/projects/team/link"),
            ("PUT", "/v1/projects/team/link"),
            ("DELETE", "/v1/projects/team/link"),
            ("GET", "/v1/projects/link/inner"),
            ("PUT", "/v1/projects/link/inner"),
            ("DELETE", "/v1/projects/link/inner"),
            ("GET", "/v1/projects/team/file"),
            ("PUT", "/v1/projects/team/file"),
        ] {
            assert_eq!(send(method, path.to_owned(), &config), 404, "{method} {path}");
        }
    }
    assert_eq!(files(&outside), outside_before);
    assert_eq!(files(project.path()), mine);
    // and what was made has a name
    for entry in WalkDir::new(&projects).min_depth(1).max_depth(2).into_iter().map(Result::unwrap) {
        let name = entry.file_name().to_str().expect("a name");
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        assert!(name.len() <= 63 && name.chars().all(is_plain) && !name.starts_with('.'), "{name}");
    }
    let beside: Vec<String> = std::fs::read_dir(project.home())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["data", "outside"].contains(&name.as_str()))
        .collect();
    assert_eq!(beside, Vec::<String>::new());
    daemon.stop();
}
