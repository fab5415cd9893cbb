//! What must hold for every input, whoever wrote it. Each check panics where it does not. The fuzz targets run them,
//! and so do the workspace's own tests, on the seeds.

mod answers;
mod requests;
mod texts;

pub use answers::{answer, sse};
pub use requests::requests;
pub use texts::{json, text_calls};

/// How many bytes a decoder is fed at a time, beside all at once.
fn sizes(bytes: &[u8]) -> [usize; 2] {
    [1, 2 + bytes.len() % 13]
}
