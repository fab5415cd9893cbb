//! Cuts text at stop sequences that the upstream was not told about.

/// Looks for the sequences in text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct StopCutter {
    stops: Vec<String>,
    /// May be the beginning of a sequence; shorter than the longest of them.
    held: String,
}

impl StopCutter {
    pub(super) fn new(stops: Vec<String>) -> Self {
        Self { stops: stops.into_iter().filter(|stop| !stop.is_empty()).collect(), held: String::new() }
    }

    /// What of the text may be told, and the sequence that ended it.
    pub(super) fn push(&mut self, text: String) -> (String, Option<String>) {
        if self.stops.is_empty() {
            return (text, None);
        }
        self.held.push_str(&text);
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((at, stop)) = found.min_by_key(|(at, _)| *at) {
            let stop = stop.clone();
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let earliest = self.held.len().saturating_sub(longest);
        let begins = |at: &usize| {
            self.held.get(*at..).is_some_and(|rest| self.stops.iter().any(|stop| stop.starts_with(rest)))
        };
        let keep = (earliest..self.held.len()).find(begins).unwrap_or(self.held.len());
        let held = self.held.split_off(keep);
        (std::mem::replace(&mut self.held, held), None)
    }

    /// What was held, where no sequence came of it.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
