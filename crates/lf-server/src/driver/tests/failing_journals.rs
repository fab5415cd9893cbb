use lf_core::JournalError;

use super::*;

/// Keeps what comes with its first flushes, and then nothing.
struct Failing {
    /// Flushes that it still keeps.
    left: usize,
    /// Entries that wait to be kept.
    waiting: usize,
}

impl Failing {
    fn after(flushes: usize) -> Self {
        Self { left: flushes, waiting: 0 }
    }
}

impl Journal for Failing {
    fn append(&mut self, _: &Entry) {
        self.waiting += 1;
    }

    fn flush(&mut self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            if std::mem::take(&mut self.waiting) == 0 {
                return Ok(());
            }
            let full = || JournalError { place: "here".to_owned(), reason: "the disk is full".to_owned() };
            self.left = self.left.checked_sub(1).ok_or_else(full)?;
            Ok(())
        })
    }
}

const PIECES: usize = 1000;

/// Answers in many pieces, which come one by one and are counted.
struct Talkative(Arc<AtomicUsize>);

impl ModelProvider for Talkative {
    fn stream(&self, _: &ModelRequest) -> DeltaStream {
        let pieces = stream::unfold(self.0.clone(), |told| async move {
            tokio::task::yield_now().await;
            let delta = match told.fetch_add(1, Ordering::SeqCst) {
                at if at < PIECES => ModelDelta::Text("more ".to_owned()),
                PIECES => ModelDelta::Finish { reason: FinishReason::Stop, raw: None, stop_sequence: None },
                _ => return None,
            };
            Some((Ok(delta), told))
        });
        Box::pin(pieces)
    }
}

fn is_unkept(event: Option<&ChatEvent>) -> bool {
    matches!(event, Some(ChatEvent::Failed(error)) if error.to_string().contains("the disk is full"))
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_kept_any_more_is_not_listened_to() {
    let (_, course, events, with) = prepared(Vec::new(), false, Limits::default());
    let told = Arc::new(AtomicUsize::new(0));
    let with = Drive {
        upstreams: answered_by(Talkative(told.clone())),
        journal: Some(Box::new(Failing::after(5))),
        ..with
    };
    let events: Vec<ChatEvent> = drive(course, events, with).collect().await;
    assert!(is_unkept(events.last()), "{events:?}");
    assert_eq!(told.load(Ordering::SeqCst), 6, "pieces that were asked for");
    let text: String = events
        .iter()
        .filter_map(|event| match event {
            ChatEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text.trim_end(), "more more more more more", "nothing is shown that is not kept");
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_very_end_cannot_be_kept_says_so() {
    let (_, course, events, with) = prepared(Vec::new(), false, Limits::default());
    let told = Arc::new(AtomicUsize::new(PIECES - 1));
    // the one piece and its end mark are kept, and that the answer is whole is not
    let with =
        Drive { upstreams: answered_by(Talkative(told)), journal: Some(Box::new(Failing::after(2))), ..with };
    let events: Vec<ChatEvent> = drive(course, events, with).collect().await;
    assert!(is_unkept(events.last()), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, ChatEvent::Finished { .. })), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_cannot_be_noted_is_not_run() {
    let (bench, course, events, with) = prepared(vec!["hang"], false, Limits::default());
    let with = Drive { journal: Some(Box::new(Failing::after(1))), ..with };
    let events: Vec<ChatEvent> = drive(course, events, with).collect().await;
    assert!(is_unkept(events.last()), "{events:?}");
    assert_eq!(bench.dropped.load(Ordering::SeqCst), 0, "it never began");
}
