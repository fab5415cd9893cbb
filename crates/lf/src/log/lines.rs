//! Log lines on their way to stderr. A thread writes them, so that whoever reads them slowly, or not at all, holds up nobody:
//! lines that find no room are counted and left out.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait. A burst of a few hundred turns fits.
const ROOM: usize = 4096;
/// For the last lines to be taken when the program ends.
const END_WAIT: Duration = Duration::from_millis(500);
/// Between two looks for room.
const PAUSE: Duration = Duration::from_millis(1);

enum Message {
    Line(Vec<u8>),
    /// Everything before it is written.
    Mark(SyncSender<()>),
}

/// The way in.
#[derive(Clone)]
pub(crate) struct Lines {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicUsize>,
}

impl Lines {
    /// Lines for this stream, such as stderr.
    ///
    /// # Errors
    /// When the system has no threads left.
    pub(super) fn to(stream: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, queue) = sync_channel(ROOM);
        let dropped = Arc::<AtomicUsize>::default();
        let counted = dropped.clone();
        std::thread::Builder::new()
            .name("lf-log".to_owned())
            .spawn(move || write(stream, &queue, &counted))?;
        Ok(Self { sender, dropped })
    }

    /// Waits until what was logged so far is written, half a second at most.
    pub(crate) fn end(&self) {
        self.end_within(END_WAIT);
    }

    fn end_within(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let (mark, written) = sync_channel(1);
        let mut message = Message::Mark(mark);
        // a queue that is full may be one that is being written
        while let Err(refused) = self.sender.try_send(message) {
            let TrySendError::Full(back) = refused else { return };
            if Instant::now() >= end {
                return;
            }
            message = back;
            std::thread::sleep(PAUSE);
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

impl Write for Lines {
    /// Takes a whole line, or counts it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Message::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What cannot be written (a full disk, a closed stream) is lost, and what comes later is tried again.
fn write(mut stream: impl Write, queue: &Receiver<Message>, dropped: &AtomicUsize) {
    while let Ok(message) = queue.recv() {
        match message {
            Message::Line(line) => {
                let _ = stream.write_all(&line);
            }
            Message::Mark(written) => {
                let _ = stream.flush();
                let _ = written.send(());
            }
        }
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            count => {
                let _ = writeln!(
                    stream,
                    "lf: {count} lines of the log were left out: nobody read them fast enough"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex, PoisonError};

    use super::*;

    /// A stream that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Gated(Arc<(Mutex<State>, Condvar)>);

    /// Whether it is open, and what it took.
    type State = (bool, Vec<u8>);

    impl Gated {
        fn open(&self) {
            self.0.0.lock().unwrap_or_else(PoisonError::into_inner).0 = true;
            self.0.1.notify_all();
        }

        fn text(&self) -> String {
            let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&state.1).into_owned()
        }
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state =
                self.0.1.wait_while(state, |state| !state.0).unwrap_or_else(PoisonError::into_inner);
            state.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::StorageFull.into())
        }
    }

    #[test]
    fn lines_that_find_no_room_are_counted_and_told_when_somebody_reads() {
        let stream = Gated::default();
        let mut lines = Lines::to(stream.clone()).unwrap();
        // one of them may be with the writer already
        let count = ROOM + 11;
        for at in 0..count {
            lines.write_all(format!("line {at}\n").as_bytes()).unwrap();
        }
        stream.open();
        while !stream.text().contains("left out") {
            std::thread::yield_now();
        }
        let text = stream.text();
        let dropped: usize =
            text.lines().find_map(|line| line.strip_prefix("lf: ")?.split(' ').next()?.parse().ok()).unwrap();
        assert!((10..=11).contains(&dropped), "{dropped}");
        lines.end_within(Duration::from_secs(60));
        assert_eq!(stream.text().matches("line ").count(), count - dropped);
    }

    #[test]
    fn the_end_waits_for_room_where_somebody_reads() {
        let stream = Gated::default();
        let mut lines = Lines::to(stream.clone()).unwrap();
        // nothing is taken yet, so that the queue is full
        for at in 0..ROOM + 11 {
            lines.write_all(format!("line {at}\n").as_bytes()).unwrap();
        }
        let ending = std::thread::spawn(move || lines.end_within(Duration::from_secs(60)));
        stream.open();
        ending.join().unwrap();
        assert!(stream.text().contains(&format!("line {}\n", ROOM - 1)), "what had room is written");
    }

    #[test]
    fn the_end_is_not_waited_for_where_nobody_reads() {
        let mut lines = Lines::to(Gated::default()).unwrap();
        for _ in 0..ROOM + 11 {
            lines.write_all(b"line\n").unwrap();
        }
        lines.end();
    }

    #[test]
    fn a_stream_that_takes_nothing_costs_the_lines_and_no_more() {
        let mut lines = Lines::to(Full).unwrap();
        assert_eq!(lines.write(b"line\n").unwrap(), 5);
        lines.end();
    }
}
