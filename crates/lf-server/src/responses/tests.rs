use super::*;

#[test]
fn a_response_that_was_stopped_has_no_end_to_keep() {
    let making = Making::default();
    let made = making.begin("a");
    assert!(making.has("a") && making.stop("a") && made.stop.is_cancelled());
    assert!(!making.has("a") && !making.stop("a") && !made.ends());
    let made = making.begin("b");
    assert!(made.ends() && making.has("b"), "it is being kept");
    assert!(!making.stop("b"), "too late");
    drop(made);
    assert!(!making.has("b"));
}

fn unstored(text: &str) -> Unstored {
    Unstored { body: json!({"text": text}), conversation: [].into() }
}

#[test]
fn a_connection_keeps_its_last_responses_to_itself() {
    let held = Held::new();
    let (one, other) = (Aside::new(held.clone()), Aside::new(held.clone()));
    for at in 0..10 {
        one.hold(&at.to_string(), unstored("said"));
    }
    let known: Vec<bool> = (0..10).map(|at| one.find(&at.to_string()).is_some()).collect();
    assert_eq!(known, [false, false, true, true, true, true, true, true, true, true]);
    assert!(other.find("9").is_none());
    assert!(!other.forget("9") && one.forget("9") && one.find("9").is_none());
    drop(one);
    held.0.run_pending_tasks();
    assert_eq!(held.0.entry_count(), 0, "they go with the connection");
}

#[test]
fn what_is_held_is_bounded_in_bytes() {
    let held = Held::new();
    let connections: Vec<Aside> = (0..20).map(|_| Aside::new(held.clone())).collect();
    for connection in &connections {
        for at in 0..8 {
            connection.hold(&at.to_string(), unstored(&"x".repeat(1024 * 1024)));
        }
    }
    held.0.run_pending_tasks();
    assert!(held.0.weighted_size() <= HELD);
    assert!(connections[19].find("7").is_some());
}
