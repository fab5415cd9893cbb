use super::*;

const DATABASE: &str = r#"{"database": "somewhere", "date": "2026-08-21"}
{"id": "A-1", "package": "leaky", "kind": "vulnerability", "mended": [">= 1.2.3", ">= 0.9.8, < 1.0.0", "< 0.5.0"]}
{"id": "A-2", "package": "given-up", "kind": "unmaintained", "mended": []}
"#;

fn found(packages: &[(&str, &str)]) -> Vec<String> {
    let database = Database::parse(DATABASE).unwrap();
    let tree: Vec<(String, Version)> =
        packages.iter().map(|(name, version)| ((*name).to_owned(), version.parse().unwrap())).collect();
    database.of(&tree).into_iter().map(|(advisory, version)| format!("{} {version}", advisory.id)).collect()
}

#[test]
fn what_is_affected_is_found_and_nothing_else() {
    let versions = ["0.4.9", "0.5.0", "0.9.7", "0.9.8", "1.0.0", "1.2.2", "1.2.3", "2.0.0"];
    let tree: Vec<(&str, &str)> = versions.iter().map(|version| ("leaky", *version)).collect();
    assert_eq!(found(&tree), ["A-1 0.5.0", "A-1 0.9.7", "A-1 1.0.0", "A-1 1.2.2"]);
    assert_eq!(found(&[("leaky-not", "1.0.0"), ("given-up", "7.0.0")]), ["A-2 7.0.0"]);
}

#[test]
fn a_line_that_is_no_advisory_is_named() {
    let text = format!("{DATABASE}{{\"id\": \"A-3\"}}\n");
    let error = Database::parse(&text).err().unwrap();
    assert!(format!("{error:#}").starts_with("line 4: missing field"), "{error:#}");
    assert!(Database::parse("").is_err());
}

#[test]
fn the_packages_of_a_lock_file_are_read_with_their_own_versions() {
    let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\n \"b 0.2.0\",\n]\n\n[[package]]\nname = \"b\"\nversion = \"0.2.0\"\n";
    let names: Vec<String> =
        packages(lock).unwrap().into_iter().map(|(name, version)| format!("{name} {version}")).collect();
    assert_eq!(names, ["a 1.0.0", "b 0.2.0"]);
    assert!(packages("version = 4\n").is_err());
}
