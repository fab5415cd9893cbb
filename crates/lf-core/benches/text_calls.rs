//! `cargo bench -p lf-core`: a model's text through the scanner, a token at a time. It fails where a longer text costs
//! more for each byte.
#![expect(clippy::print_stdout, reason = "its result is what it prints")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use lf_core::text_calls::{TextEnd, TextFormat, TextScanner, named, names};

const SHORT: usize = 25_000;
const LONG: usize = 400_000;
const RUNS: usize = 3;
/// Bytes of a token.
const TOKEN: usize = 4;
/// Sixteen times the text may cost this much more for each byte: 16 where all is read again with each token.
const MOST: f64 = 4.0;

const PROSE: &str = "A list of values where a < b and `x` is 'y', in 3 steps:\n\n1. [first] {see} below\n";
const CALLS: &str = "Now.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"text\": \"a \\\"b\\\" </tool_call> c\"}}\n</tool_call>\n";

fn main() -> ExitCode {
    println!(
        "MB/s of text in pieces of {TOKEN} bytes, and the cost of a byte in {LONG} of them to that in {SHORT}"
    );
    println!("{:<22}{:>9}{:>8}{:>9}{:>8}", "", "prose", "", "calls", "");
    let mut steep = false;
    for (name, formats) in names().filter_map(|name| Some((name, named(name)?))) {
        let row = [PROSE, CALLS].map(|text| {
            let cost = |size: usize| {
                let text = text.repeat(size / text.len());
                let best = (0..RUNS).map(|_| scan(formats, &text)).min().unwrap_or_default();
                best.as_secs_f64() / text.len() as f64
            };
            let (short, long) = (cost(SHORT), cost(LONG));
            steep |= long > MOST * short;
            format!("{:>9.1}{:>8.2}", 1e-6 / long, long / short)
        });
        println!("{name:<22}{}", row.concat());
    }
    if steep { ExitCode::FAILURE } else { ExitCode::SUCCESS }
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
