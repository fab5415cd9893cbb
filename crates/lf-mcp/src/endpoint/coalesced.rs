//! One piece of news for many: a server that loads its plugins tells of each, and each session with it tells the same.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, unfold};
use tokio::time::{Instant, timeout_at};

use super::News;

/// For which changes are gathered after the first.
const GATHERING: Duration = Duration::from_millis(100);
/// Different changes that are gathered; more end it.
const MOST: usize = 256;

/// The same news, with what is told several times in a moment told once, at the end of it. Messages go on at once.
pub(super) fn coalesced(news: BoxStream<'static, News>) -> BoxStream<'static, News> {
    let gathering = Gathering { news, gathered: Vec::new(), end: None };
    unfold(gathering, |mut gathering| async move { Some((gathering.next().await?, gathering)) })
        .flat_map(futures_util::stream::iter)
        .boxed()
}

struct Gathering {
    news: BoxStream<'static, News>,
    gathered: Vec<News>,
    end: Option<Instant>,
}

impl Gathering {
    async fn next(&mut self) -> Option<Vec<News>> {
        loop {
            let next = match self.end {
                None => self.news.next().await,
                Some(end) => match timeout_at(end, self.news.next()).await {
                    Ok(next) => next,
                    Err(_) => return Some(self.take()),
                },
            };
            match next {
                Some(message @ News::Log(_)) => return Some(vec![message]),
                Some(change) => {
                    self.end.get_or_insert_with(|| Instant::now() + GATHERING);
                    if !self.gathered.contains(&change) {
                        self.gathered.push(change);
                    }
                    if self.gathered.len() == MOST {
                        return Some(self.take());
                    }
                }
                None if self.gathered.is_empty() => return None,
                None => return Some(self.take()),
            }
        }
    }

    fn take(&mut self) -> Vec<News> {
        self.end = None;
        std::mem::take(&mut self.gathered)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use serde_json::json;

    use super::super::List;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_storm_of_changes_is_told_once_and_messages_at_once() {
        let log = News::Log(json!({"data": "x"}));
        let tools = News::Changed(List::Tools);
        let updated = News::Updated(json!({"uri": "a"}));
        let told =
            [tools.clone(), updated.clone(), tools.clone(), log.clone(), tools.clone(), updated.clone()];
        let endless = stream::iter(told).chain(stream::pending()).boxed();
        let heard: Vec<News> = coalesced(endless).take(3).collect().await;
        assert_eq!(heard, [log, tools.clone(), updated]);
        let ended: Vec<News> =
            coalesced(stream::iter([tools.clone(), tools.clone()]).boxed()).collect().await;
        assert_eq!(ended, [tools]);
    }
}
