//! Long conversations are read in parts.

use super::*;

on_both_stores! {
    messages_are_read_in_parts_of_a_number_and_a_size,
}

async fn messages_are_read_in_parts_of_a_number_and_a_size(bench: Bench) {
    bench.conversation("a").await;
    let all: Vec<String> = (1..=7).map(|n| format!("msg-{n}")).collect();
    let said: Vec<(String, Message)> = all.iter().map(|id| (id.clone(), user(&"ä".repeat(500)))).collect();
    bench.store.append("a", 0, &said).await.unwrap();
    bench.store.delete_message("a", "msg-2").await.unwrap();
    let left: Vec<&str> = all.iter().map(String::as_str).filter(|id| *id != "msg-2").collect();
    let one = serde_json::to_string(&said[0].1).unwrap().len();
    let one = i64::try_from(one).unwrap();
    assert!(one > 1000, "bytes are meant, not letters");
    for (count, bytes, expected) in [
        (1, i64::MAX, 1),
        (5, i64::MAX, 5),
        (6, i64::MAX, 6),
        (7, i64::MAX, 6),
        (7, 1, 1),
        (7, one, 1),
        (7, one + 1, 2),
        (7, 2 * one, 2),
        (2, 5 * one, 2),
    ] {
        let (mut read, mut after, mut has_more) = (Vec::new(), 0, true);
        while has_more {
            let (part, more) = bench.store.messages_within("a", after, (count, bytes)).await.unwrap();
            assert!(
                part.len() == expected || !more && part.len() < expected,
                "{count} {bytes}: {}",
                part.len()
            );
            after = part.last().expect("a message").seq;
            has_more = more;
            read.extend(part.into_iter().map(|kept| kept.id));
        }
        assert_eq!(read, left, "{count} {bytes}");
    }
    assert_eq!(bench.store.messages_within("a", 7, (5, 5)).await.unwrap(), (Vec::new(), false));
    assert_eq!(bench.store.messages_within("none", 0, (5, 5)).await.unwrap(), (Vec::new(), false));
}
