use async_stream::stream;
use axum::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::*;

/// Messages that the network holds.
const LINE: usize = 64;

/// Our end of a connection in memory.
struct Ours {
    hear: mpsc::Receiver<Result<Message, axum::Error>>,
    tell: mpsc::Sender<Message>,
}

impl Line for Ours {
    async fn hear(&mut self) -> Option<Result<Message, axum::Error>> {
        self.hear.recv().await
    }

    async fn tell(&mut self, message: Message) -> Result<(), axum::Error> {
        self.tell.send(message).await.map_err(axum::Error::new)
    }
}

/// The client's end, and the connection behind it.
struct Theirs {
    tell: mpsc::Sender<Result<Message, axum::Error>>,
    hear: mpsc::Receiver<Message>,
    stop: CancellationToken,
    /// One for each piece of an answer that may be told.
    pieces: mpsc::Sender<()>,
    /// Counts the answers that are being made.
    making: std::sync::Arc<()>,
    talk: JoinHandle<()>,
}

/// A connection whose answers are two frames: the beginning, and after a piece was let through the end.
fn connected() -> Theirs {
    let (tell, ours) = mpsc::channel(LINE);
    let (their, hear) = mpsc::channel(LINE);
    let (pieces, through) = mpsc::channel::<()>(LINE);
    let through = std::sync::Arc::new(tokio::sync::Mutex::new(through));
    let (stop, making) = (CancellationToken::new(), std::sync::Arc::new(()));
    let ends = Ends { stop: stop.clone() };
    let made = making.clone();
    let turn = move |create: Create| -> Frames {
        let asked: Value = serde_json::from_slice(&create.body).unwrap();
        let (through, made) = (through.clone(), made.clone());
        Box::pin(stream! {
            yield format!("{} begins", asked["input"]);
            through.lock().await.recv().await;
            yield format!("{} ends", asked["input"]);
            drop(made);
        })
    };
    let ours = Ours { hear: ours, tell: their };
    let talk = TaskTracker::new().spawn(async move { talk(ours, &ends, turn).await });
    Theirs { tell, hear, stop, pieces, making, talk }
}

impl Theirs {
    async fn ask(&self, input: u32) {
        let frame = json!({"type": "response.create", "input": input}).to_string();
        self.tell.send(Ok(Message::text(frame))).await.unwrap();
    }

    /// The next message but for pings; those are answered.
    async fn next(&mut self) -> String {
        loop {
            match self.hear.recv().await {
                Some(Message::Text(text)) => return text.as_str().to_owned(),
                Some(Message::Ping(_)) => {
                    let _ = self.tell.send(Ok(Message::Pong(Bytes::new()))).await;
                }
                Some(Message::Close(Some(close))) => return format!("close {}", close.code),
                other => return format!("{other:?}"),
            }
        }
    }

    async fn said(&mut self, wanted: &[&str]) {
        for wanted in wanted {
            assert_eq!(self.next().await, *wanted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_one_after_another_in_their_order() {
    let mut client = connected();
    client.ask(1).await;
    client.ask(2).await;
    client.tell.send(Ok(Message::text("{"))).await.unwrap();
    client
        .tell
        .send(Ok(Message::binary(br#"{"type": "response.create", "input": 3}"#.to_vec())))
        .await
        .unwrap();
    for _ in 0..3 {
        client.pieces.send(()).await.unwrap();
    }
    client.said(&["1 begins", "1 ends", "2 begins", "2 ends"]).await;
    let refusal: Value = serde_json::from_str(&client.next().await).unwrap();
    assert_eq!((&refusal["type"], &refusal["status"]), (&json!("error"), &json!(400)));
    client.said(&["3 begins", "3 ends"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_too_much_at_once_is_not_read_until_there_is_room() {
    let mut client = connected();
    client.ask(0).await;
    client.said(&["0 begins"]).await;
    let mut asked = 0;
    while timeout(Duration::from_secs(1), client.ask(asked + 1)).await.is_ok() {
        asked += 1;
    }
    assert_eq!(asked as usize, WAITING + LINE, "so many wait here, and the rest where it is");
    for input in 0..asked {
        client.pieces.send(()).await.unwrap();
        let (end, begin) = (format!("{input} ends"), format!("{} begins", input + 1));
        client.said(&[&end, &begin]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_takes_the_running_answer_along() {
    for goodbye in [Some(Ok(Message::Close(None))), Some(Err(axum::Error::new(std::fmt::Error))), None] {
        let mut client = connected();
        client.ask(1).await;
        client.said(&["1 begins"]).await;
        assert_eq!(std::sync::Arc::strong_count(&client.making), 3);
        if let Some(goodbye) = goodbye {
            client.tell.send(goodbye).await.unwrap();
        }
        drop(client.tell);
        client.talk.await.unwrap();
        assert_eq!(std::sync::Arc::strong_count(&client.making), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_silent_is_given_up_and_one_that_answers_pings_is_not() {
    let mut client = connected();
    client.ask(1).await;
    let began = Instant::now();
    while client.hear.recv().await.is_some() {}
    assert_eq!(began.elapsed().as_secs(), (SILENCE + GOODBYE).as_secs());
    client.talk.await.unwrap();

    let mut client = connected();
    client.ask(1).await;
    client.said(&["1 begins"]).await;
    assert!(timeout(SILENCE * 10, client.next()).await.is_err(), "nothing is said, and nothing ends");
    client.pieces.send(()).await.unwrap();
    client.said(&["1 ends"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_has_lasted_long_enough_says_so_after_what_runs() {
    let mut client = connected();
    client.ask(1).await;
    client.ask(2).await;
    client.said(&["1 begins"]).await;
    assert!(timeout(LIFE + PING, client.next()).await.is_err(), "the answer is waited for");
    client.pieces.send(()).await.unwrap();
    client.said(&["1 ends"]).await;
    let told: Value = serde_json::from_str(&client.next().await).unwrap();
    assert_eq!(told["error"]["code"], "websocket_connection_limit_reached");
    client.said(&["close 1000"]).await;
    client.talk.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_what_runs_finish_and_begins_nothing_else() {
    let mut client = connected();
    client.ask(1).await;
    client.ask(2).await;
    client.said(&["1 begins"]).await;
    client.stop.cancel();
    client.pieces.send(()).await.unwrap();
    client.said(&["1 ends", "close 1001"]).await;
    client.talk.await.unwrap();

    let mut idle = connected();
    idle.stop.cancel();
    idle.said(&["close 1001"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_told_before_the_end() {
    let mut client = connected();
    let error = axum::Error::new(std::io::Error::other("Space limit exceeded: Message too long: 2 > 1"));
    client.tell.send(Err(error)).await.unwrap();
    let told: Value = serde_json::from_str(&client.next().await).unwrap();
    assert_eq!((&told["status"], &told["error"]["code"]), (&json!(413), &json!("message_too_large")));
    client.said(&["close 1009"]).await;
}
