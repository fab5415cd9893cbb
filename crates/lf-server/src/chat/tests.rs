use super::*;

#[test]
fn lists_are_logged_as_the_guide_shows_them() {
    assert_eq!(listed(&["filesystem", "database"]), "['filesystem', 'database']");
    assert_eq!(listed(&[]), "[]");
}
