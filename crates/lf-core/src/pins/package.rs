//! Programs that are fetched when they are started: which of them are another as soon as somebody publishes one.

/// The package that a command fetches in whatever version is the newest, with how it is written in one; `None` where it names
/// one, or fetches nothing.
///
/// Of `npx`, `bunx` and `uvx` alone: what others fetch cannot be told from their arguments.
pub fn loose_package(command: &str, args: &[String]) -> Option<(String, String)> {
    let program = command.rsplit(['/', '\\']).next().unwrap_or(command);
    let program = program.strip_suffix(".cmd").or_else(|| program.strip_suffix(".exe")).unwrap_or(program);
    match program {
        "npx" | "bunx" => {
            let packages = packages(args, &["-p", "--package"], NPX_VALUES);
            let loose = packages.into_iter().find(|package| !is_exact_npm(package))?;
            Some((loose.to_owned(), format!("{}@1.2.3", npm_name(loose))))
        }
        "uvx" => {
            let packages = packages(args, &["--from", "--with"], UVX_VALUES);
            let loose = packages.into_iter().find(|package| !is_exact_python(package))?;
            Some((loose.to_owned(), format!("{}==1.2.3", python_name(loose))))
        }
        _ => None,
    }
}

/// Options that take the next argument and name no package.
const NPX_VALUES: &[&str] =
    &["-c", "--call", "-w", "--workspace", "--registry", "--cache", "--userconfig", "--prefix", "--loglevel"];
const UVX_VALUES: &[&str] = &[
    "-p",
    "--python",
    "-i",
    "--index-url",
    "--index",
    "--default-index",
    "--extra-index-url",
    "-f",
    "--find-links",
    "--cache-dir",
    "--config-file",
    "--directory",
    "--project",
    "--env-file",
    "--refresh-package",
    "-c",
    "--constraints",
    "--overrides",
    "--with-requirements",
    "--with-editable",
    "--exclude-newer",
    "--index-strategy",
    "--keyring-provider",
    "--link-mode",
    "--color",
    "--allow-insecure-host",
    "--prerelease",
    "--resolution",
];

/// The packages that are named by options, or else by the first argument that is none.
fn packages<'a>(args: &'a [String], naming: &[&str], with_values: &[&str]) -> Vec<&'a str> {
    let mut named = Vec::new();
    let mut has_source = false;
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--" {
            continue;
        }
        if let Some(option) = naming.iter().find(|option| arg == **option) {
            named.extend(args.next());
            has_source |= *option != "--with";
        } else if let Some((option, package)) =
            arg.split_once('=').filter(|(option, _)| naming.contains(option))
        {
            named.push(package);
            has_source |= option != "--with";
        } else if with_values.contains(&arg) {
            args.next();
        } else if !arg.starts_with('-') {
            // what follows are the program's own
            named.extend((!has_source).then_some(arg));
            break;
        }
    }
    named
}

/// `name@1.2.3`, `@scope/name@1.2.3`, a path, or a commit of a repository.
fn is_exact_npm(package: &str) -> bool {
    if is_path(package) {
        return true;
    }
    if package.contains(':') {
        return has_commit(package, '#');
    }
    let version = package.get(1..).and_then(|rest| rest.rsplit_once('@')).map(|(_, version)| version);
    version
        .is_some_and(|version| is_version(version) && version.split(['-', '+']).next().is_some_and(is_three))
}

/// `name==1.2.3`, `name@1.2.3`, a path, or a commit of a repository.
fn is_exact_python(package: &str) -> bool {
    if is_path(package) {
        return true;
    }
    if package.contains("://") {
        return has_commit(package, '@') || package.ends_with(".whl") || package.ends_with(".tar.gz");
    }
    let version =
        package.split_once("==").or_else(|| package.split_once('@')).map(|(_, version)| version.trim());
    version.is_some_and(is_version)
}

/// One version, and not a range or a tag.
fn is_version(version: &str) -> bool {
    version.starts_with(|c: char| c.is_ascii_digit())
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+!_".contains(c))
}

fn is_three(version: &str) -> bool {
    let parts: Vec<&str> = version.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty())
}

fn is_path(package: &str) -> bool {
    package.starts_with(['.', '/', '~']) || package.starts_with("file:")
}

fn has_commit(package: &str, before: char) -> bool {
    let commit =
        package.rsplit_once(before).map(|(_, commit)| commit.split(['#', '&']).next().unwrap_or(commit));
    commit.is_some_and(|commit| commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()))
}

fn npm_name(package: &str) -> &str {
    let end = package.get(1..).and_then(|rest| rest.find('@')).map_or(package.len(), |at| at + 1);
    &package[..end]
}

fn python_name(package: &str) -> &str {
    let end = package.find(['=', '@', '<', '>', '~', '!', ' ', ';']).unwrap_or(package.len());
    &package[..end]
}

#[cfg(test)]
mod tests;
