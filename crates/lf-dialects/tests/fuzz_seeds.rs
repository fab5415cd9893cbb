//! What the fuzz targets check holds for what they start from, without a fuzzer.

use std::io;
use std::path::Path;

use lf_dialects::Dialect;

#[expect(unreachable_pub, reason = "a crate of its own where the fuzzer builds it")]
#[path = "../../../fuzz/src/lib.rs"]
mod checks;

fn each(target: &str, check: impl Fn(&[u8])) -> io::Result<()> {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    for entry in std::fs::read_dir(seeds)? {
        let seed = std::fs::read(entry?.path())?;
        // cut anywhere, they are what a broken connection leaves
        for length in (0..seed.len()).step_by(7).chain([seed.len()]) {
            check(&seed[..length]);
        }
    }
    Ok(())
}

#[test]
fn framing_holds() -> io::Result<()> {
    each("sse", checks::sse)
}

#[test]
fn answers_hold_in_every_dialect() -> io::Result<()> {
    for (target, dialect) in [
        ("answer_openai_chat", Dialect::OpenaiChat),
        ("answer_openai_responses", Dialect::OpenaiResponses),
        ("answer_anthropic", Dialect::Anthropic),
        ("answer_gemini", Dialect::Gemini),
        ("answer_ollama", Dialect::Ollama),
        ("answer_ai_sdk", Dialect::AiSdk),
    ] {
        each(target, |seed| checks::answer(dialect, seed))?;
    }
    Ok(())
}

#[test]
fn text_calls_and_json_hold() -> io::Result<()> {
    each("text_calls", checks::text_calls)?;
    each("json", checks::json)
}

#[test]
fn requests_hold() -> io::Result<()> {
    each("requests", checks::requests)
}
