//! `cargo bench -p lf-core`: a model's text through the scanner, a token at a time.
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use lf_core::text_calls::{TextEnd, TextFormat, TextScanner, named, names};

const MEGABYTE: usize = 1_000_000;
const RUNS: usize = 3;
/// Bytes of a token.
const TOKEN: usize = 4;

const PROSE: &str = "A list of values where a < b and `x` is 'y', in 3 steps:\n\n1. [first] {see} below\n";
const CALLS: &str = "Now.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"a \\\"b\\\" </tool_call> c\"}}\n</tool_call>\n";

fn main() {
    println!("MB/s of text in pieces of {TOKEN} bytes, best of {RUNS}");
    println!("{:<22}{:>9}{:>9}", "", "prose", "calls");
    for (name, formats) in names().filter_map(|name| Some((name, named(name)?))) {
        let [prose, calls] = [PROSE, CALLS].map(|text| {
            let best = (0..RUNS).map(|_| scan(formats, &text.repeat(MEGABYTE / text.len()))).min();
            MEGABYTE as f64 / best.unwrap_or_default().as_micros().max(1) as f64
        });
        println!("{name:<22}{prose:>9.1}{calls:>9.1}");
    }
}

fn scan(formats: &'static [TextFormat], text: &str) -> Duration {
    let started = Instant::now();
    let mut scanner = TextScanner::new(formats);
    let mut pieces = Vec::new();
    for token in text.as_bytes().chunks(TOKEN) {
        pieces.extend(scanner.push(&String::from_utf8_lossy(token)));
    }
    pieces.extend(scanner.finish(TextEnd::Clean));
    black_box(pieces);
    started.elapsed()
}
