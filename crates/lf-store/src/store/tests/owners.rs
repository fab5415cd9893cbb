//! What is kept is known to be of whoever made it.

use lf_core::turn::Resume;

use super::*;

on_both_stores! {
    what_one_has_made_is_listed_and_found_for_no_other,
    what_waits_and_what_is_come_back_for_is_of_whoever_asked,
}

async fn what_one_has_made_is_listed_and_found_for_no_other(bench: Bench) {
    for (id, owner) in [("a", "key:1"), ("b", "key:2"), ("c", "")] {
        let owned = Conversation { owner: owner.to_owned(), ..conversation(id) };
        assert!(bench.store.create(&owned).await.unwrap());
        let said = [(format!("msg-{id}"), user("hay"))];
        let begun = begun(Vec::new());
        let begin = Begin { turn: id, conversation: id, said: &said, begun: &begun, after: None };
        bench.store.begin(begin).await.unwrap();
        assert_eq!(bench.store.conversation(id).await.unwrap().unwrap().owner, owner);
    }
    for (owner, expected) in
        [(Some("key:1"), "a"), (Some("key:2"), "b"), (Some(""), "c"), (Some("key"), ""), (None, "abc")]
    {
        let listed = bench.store.conversations("default/p", Kind::Conversation, owner, ALL).await.unwrap();
        let found = bench.store.search("default/p", "hay", owner, ALL).await.unwrap();
        let titled = bench.store.search("default/p", "about", owner, ALL).await.unwrap();
        for found in [listed, found, titled] {
            let mut ids: Vec<String> = found.into_iter().map(|found| found.id).collect();
            ids.sort();
            assert_eq!(ids.concat(), expected, "{owner:?}");
        }
    }
}

async fn what_waits_and_what_is_come_back_for_is_of_whoever_asked(bench: Bench) {
    let owned = Conversation { owner: "key:1".to_owned(), ..conversation("c") };
    assert!(bench.store.create(&owned).await.unwrap());
    let entry = begun(Vec::new());
    let begin = Begin { turn: "t", conversation: "c", said: &[], begun: &entry, after: None };
    bench.store.begin(begin).await.unwrap();
    let waiting = Waiting::default();
    let answer = [("msg".to_owned(), assistant("hello"))];
    bench.store.end(End { waiting: Some(&waiting), ..End::finished("t", "c", &answer) }).await.unwrap();
    let all = bench.store.all_waiting(0).await.unwrap();
    assert_eq!(all.iter().map(|left| left.owner.as_str()).collect::<Vec<_>>(), ["key:1"]);
    let resume = Resume {
        owner: "key:1".to_owned(),
        ids: vec!["call".to_owned()],
        messages: vec![assistant("hello")].into(),
    };
    bench.store.remember(&resume).await.unwrap();
    assert_eq!(bench.store.remembered("call").await.unwrap(), Some(resume));
}
