//! `lf-corpus KIND [--split N] < CASES.jsonl > OUT.jsonl`: one output object a line, in the order of the cases.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use lf_tests::corpus::{self, Kind};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, split) = match parse(&arguments) {
        Ok(parsed) => parsed,
        Err(error) => return fail(&error, 2),
    };
    match run(kind, split) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

fn parse(arguments: &[String]) -> Result<(Kind, usize)> {
    let mut kind = None;
    let mut split = 0;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--split" {
            let bytes = rest.next().context("`--split` needs a number of bytes")?;
            split = bytes.parse().with_context(|| format!("`--split {bytes}` is not a number of bytes"))?;
        } else if kind.is_none() {
            kind = Some(Kind::parse(argument).with_context(|| format!("unknown kind `{argument}`"))?);
        } else {
            bail!("unexpected argument `{argument}`");
        }
    }
    Ok((kind.context("usage: lf-corpus KIND [--split BYTES]")?, split))
}

fn run(kind: Kind, split: usize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.context("standard input is unreadable")?;
        if line.trim().is_empty() {
            continue;
        }
        let output = corpus::run(kind, &line, split).with_context(|| format!("line {}", number + 1))?;
        writeln!(out, "{output}").context("standard output is closed")?;
    }
    Ok(())
}

fn fail(error: &anyhow::Error, status: u8) -> ExitCode {
    // a closed standard error leaves nobody to tell
    let _ = writeln!(std::io::stderr(), "lf-corpus: {error:#}");
    ExitCode::from(status)
}
