//! Text from bytes that may be cut inside a character.

/// Joins pieces of UTF-8: a character that is cut waits for the rest of its bytes, bytes that are no UTF-8 become
/// U+FFFD each run.
#[derive(Debug, Default)]
pub struct Utf8Joiner {
    /// At most three bytes of an unfinished character.
    tail: Vec<u8>,
}

impl Utf8Joiner {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.tail.extend_from_slice(bytes);
        let unfinished = match self.tail.utf8_chunks().last() {
            Some(chunk) if is_unfinished(chunk.invalid()) => chunk.invalid().len(),
            _ => 0,
        };
        let rest = self.tail.split_off(self.tail.len() - unfinished);
        let whole = std::mem::replace(&mut self.tail, rest);
        match String::from_utf8(whole) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }

    /// What is left when no more bytes come.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.tail)).into_owned()
    }
}

/// Whether these bytes could become a character with more bytes.
fn is_unfinished(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
