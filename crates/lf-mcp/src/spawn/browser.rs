//! Showing a page in the person's own browser, which is none of our children: it outlives us.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use url::Url;

use super::environment::lookup;

#[cfg(target_os = "macos")]
const OPENER: &str = "/usr/bin/open";
#[cfg(not(target_os = "macos"))]
const OPENER: &str = "xdg-open";

/// What a desktop needs to find the browser that runs already, or to start one.
const DESKTOP: [&str; 12] = [
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "USER",
    "LANG",
    "TMPDIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "BROWSER",
];

/// Opens an `https` URL, or an `http` one of this machine, where there is a desktop. It is handed over as one argument,
/// never to a shell. Returns whether something was started for it; whether a page is seen is not known.
pub fn open_in_browser(url: &str, environment: &[(String, String)]) -> bool {
    let value = |name: &str| {
        environment
            .iter()
            .find(|(known, value)| known == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    };
    let has_desktop = cfg!(target_os = "macos") || value("DISPLAY").or(value("WAYLAND_DISPLAY")).is_some();
    // over a network, the browser would open where nobody sits
    if !has_desktop || value("SSH_CONNECTION").is_some() || !is_plain(url) {
        return false;
    }
    let Ok(program) = lookup(OPENER, value("PATH"), Path::new("/")) else { return false };
    let seen =
        environment.iter().filter(|(name, _)| DESKTOP.contains(&name.as_str()) || name.starts_with("XDG_"));
    #[expect(clippy::disallowed_methods, reason = "a browser is no child of ours: it is to outlive us")]
    let mut command = std::process::Command::new(program);
    command.arg(url).env_clear().envs(seen.map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    match command.spawn() {
        // it ends at once, or is the browser itself: nobody waits for that
        Ok(mut opener) => opener.try_wait().is_ok(),
        Err(_) => false,
    }
}

/// What no program that is handed it could take for anything but a page.
fn is_plain(url: &str) -> bool {
    let parsed = Url::parse(url).ok();
    let is_web =
        parsed.as_ref().is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // as the parser would write it: what it would have to mend could be read in two ways
    let is_whole = parsed.is_some_and(|parsed| parsed.as_str() == url);
    let is_quiet = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'`\\<>^{|}$();".contains(&byte));
    is_web && is_whole && is_quiet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_web_addresses_are_opened() {
        for good in ["https://id.example/authorize?a=b%20c&d=e", "http://127.0.0.1:8400/x"] {
            assert!(is_plain(good), "{good}");
        }
        let bad = [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "--help",
            "https://x.example/$(id)",
            "https://x.example/`id`",
            "https://x.example/\nfile:///etc/passwd",
            "https://x.example/ --flag",
            "https://x.example/'",
            "HTTPS://x.example/",
            "data:text/html,x",
            "mailto:x@x.example",
            "",
        ];
        for bad in bad {
            assert!(!is_plain(bad), "{bad}");
        }
    }

    #[test]
    fn without_a_desktop_nothing_is_started() {
        assert!(!open_in_browser("https://id.example/", &[("PATH".to_owned(), "/usr/bin:/bin".to_owned())]));
    }
}
