//! Conversations that many change at once.

use super::*;

on_both_stores! {
    of_changes_at_once_none_is_lost,
}

async fn of_changes_at_once_none_is_lost(bench: Bench) {
    bench.conversation("a").await;
    let some = |text: &str| Some(Some(text.to_owned()));
    for _ in 0..20 {
        let title = Change { title: some("t"), ..Change::default() };
        let system = Change { system: some("s"), ..Change::default() };
        let model = Change { model: some("m"), ..Change::default() };
        let store = &bench.store;
        let (one, two, three) =
            tokio::join!(store.change("a", title), store.change("a", system), store.change("a", model));
        assert_eq!([one, two, three], [Ok(()), Ok(()), Ok(())]);
        let found = store.conversation("a").await.unwrap().unwrap();
        let fields = [found.title.as_deref(), found.system.as_deref(), found.model.as_deref()];
        assert_eq!(fields, [Some("t"), Some("s"), Some("m")]);
        let none = Change { title: Some(None), system: Some(None), model: Some(None) };
        store.change("a", none).await.unwrap();
    }
}
