//! Reading costs the same for each byte, whatever the text and however long it is.

use super::super::body::MAX_CALL;
use super::super::scanner::MAX_REREAD;
use super::super::{Mark, TextFormat};
use super::*;
use crate::tool::tests::own_time;

/// Bytes of a text, and of a push: read again for each push, the text would cost a hundred times as much.
const SIZE: usize = 1 << 12;
const PUSH: usize = 2;
/// How much more than the middle one a text may cost: marks are looked at by many rows of the table.
const MOST: f64 = 20.0;

/// Texts that are hard to read: how each begins, and what is written again and again after it.
const HARD: &[(&str, &str)] = &[
    ("", "{\n"),
    ("", "[\n"),
    ("", "{\"name\":\n"),
    ("", "[{\n"),
    ("", "[f(\n"),
    ("", "[weather(a='"),
    ("", "Action: x\n"),
    ("", ">>>a\n"),
    ("", "functools["),
    ("", "```json\n["),
    ("", "<tool_call><function=weather><parameter=code></function>"),
    ("", "<tool_call>weather<arg_key>a</arg_key><arg_value>"),
    ("", "<tool_call>a\n"),
    ("", "<invoke name=\"a\">"),
    ("", "[TOOL_CALLS]a"),
    ("", "[TOOL_CALLS]["),
    ("", "<|tool_call_begin|>functions.a:1"),
    ("", "<|channel|>"),
    ("", "<|start|>assistant to=self<|message|>"),
    ("", "<|tool_call>call:a{b:<|\"|>"),
    ("", "]<]minimax[>[<invoke name=\"a\">]<]minimax[>[<b>"),
    ("", "<｜tool▁calls▁begin｜>"),
    ("", "<|open|>call tool=\"a\"<|sep|>"),
    ("", "[THINK][TOOL_CALLS]a{}"),
    ("<tool_call>", "{\"a\":["),
    ("<tool_call>{\"name\":\"f\",\"arguments\":\"", "{\\\"a\\\":["),
    ("<|tool_call>call:f{a:", "[{b:"),
    ("<start_function_call>call:f{a:", "[1$ 2,"),
    ("<|tool_call_start|>[f(a=", "[{'a':("),
    ("[", "f(a=[1]),"),
    ("]<]minimax[>[<invoke name=\"search\">", "]<]minimax[>[<filter>"),
    ("<tool_call>\n<function=run>\n<parameter=code>\n", "if a < b:\n"),
    ("<tool_call>", " \n"),
    ("<tool_call>f<arg_key>a</arg_key>", " \n"),
];

const HARD_BY_DEFAULT: &[(&str, &str)] = &[
    ("", "<tool_call>{"),
    ("", "<tool_call>["),
    ("", "<tool_call>{\""),
    ("", "<tool_call>{\"a\":'</tool_call>"),
    ("", "<tool_call>{\"a\": /*</tool_call>"),
    ("", "<tool_call>   \n  "),
    ("", "<tool_call>{\"name\":\"f\",\"arguments\":{}}x"),
    ("", "<tool_use><server>"),
    ("", "<tool_use><server>s</server><x>"),
    ("", "<tool_call a="),
    ("", "<think><tool_call>{}"),
    ("", "` <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"),
    ("", "\" <tool_call>{'name':'f'}</tool_call>"),
    ("", "<|im_end|> "),
    ("", "<"),
    ("", "`"),
    ("", " "),
    ("", "plain text with a < here and there\n"),
    ("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "text "),
    ("<tool_use><server>s</server><tool>f</tool><arguments>", "{\"a\":["),
];

/// One text for each kind of body, and for each state of one that waits for more: all of it is held until the end.
const HELD: &[(&str, (&str, &str))] = &[
    ("default", ("<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"", "text \\n")),
    ("default", ("<tool_call>", "{\"a\":[")),
    ("default", ("<tool_use><server>s</server><tool>f</tool><arguments>", "{\"a\":[")),
    ("mistral", ("[TOOL_CALLS]f{\"a\":\"", "text \\n")),
    ("qwen3_coder_xml", ("<tool_call>\n<function=run>\n<parameter=code>\n", "if a < b:\n")),
    ("qwen3_coder_xml", ("<tool_call>\n<function=run>\n", " \n")),
    ("glm", ("<tool_call>weather\n<arg_key>city</arg_key><arg_value>", "a < b\n")),
    ("glm", ("<tool_call>", " \n")),
    ("glm", ("<tool_call>weather", " \n")),
    ("glm", ("<tool_call>weather<arg_key>city</arg_key>", " \n")),
    ("minimax_m2", ("<invoke name=\"run\"><parameter name=\"code\">", "a < b\n")),
    ("minimax_m3", ("]<]minimax[>[<invoke name=\"search\">]<]minimax[>[<filter>", "a < b\n")),
    ("lfm2", ("<|tool_call_start|>[f(a='", "text ")),
    ("lfm2", ("<|tool_call_start|>[f(a=", "[1, ")),
    ("functiongemma", ("<start_function_call>call:f{a:<escape>", "text ")),
    ("harmony", ("<|channel|>commentary to=f<|message|>{\"a\":\"", "text ")),
];

struct Hard {
    name: &'static str,
    formats: &'static [TextFormat],
    text: String,
    push: usize,
}

impl Hard {
    fn new(name: &'static str, (begin, again): (&str, &str), size: usize, push: usize) -> Self {
        let text = format!("{begin}{}", again.repeat(size / again.len()));
        Self { name, formats: named(name).unwrap(), text, push }
    }

    /// Nanoseconds of a processor for each byte that was read. What turned out to be no call is read again, and that has a limit.
    fn cost(&self) -> f64 {
        let mut scanner = TextScanner::new(self.formats).with_tools(families::tools());
        let started = own_time();
        let mut rest = self.text.as_str();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.ceil_char_boundary(self.push));
            scanner.push(piece);
            rest = after;
        }
        scanner.finish(TextEnd::Clean);
        let elapsed = (own_time() - started).as_nanos() as f64;
        assert!(scanner.reread <= MAX_REREAD + MAX_CALL, "{}: {}", self.name, scanner.reread);
        elapsed / (self.text.len() + scanner.reread) as f64
    }
}

/// Those that cost far more than most. What else runs may have taken the caches from one; not several times.
fn dear(hard: &[Hard]) -> Vec<String> {
    let costs: Vec<f64> = hard.iter().map(Hard::cost).collect();
    let mut sorted = costs.clone();
    sorted.sort_by(f64::total_cmp);
    let most = MOST * sorted[sorted.len() / 2];
    let again = |hard: &Hard| (0..3).map(|_| hard.cost()).all(|cost| cost > most);
    let dear = hard.iter().zip(costs).filter(|(hard, cost)| *cost > most && again(hard));
    dear.map(|(hard, cost)| format!("{} {cost} ns: {:.60}", hard.name, hard.text)).collect()
}

/// What begins something in this family and not in every other.
fn openers(name: &str) -> Vec<String> {
    let own =
        named(name).unwrap().iter().filter(|format| DEFAULT.iter().all(|other| other.name != format.name));
    let marks = own.clone().flat_map(|format| {
        let reasoning = format.reasoning.iter().flat_map(|block| block.open);
        format.open.iter().chain(format.wrappers).chain(reasoning)
    });
    let channels = own.filter_map(|format| format.channels).flat_map(|channels| channels.open);
    let written = |mark: &Mark| match mark {
        Mark::Tag(name) | Mark::Suffixed(name) => format!("<{name}>"),
        Mark::Word(word) => (*word).to_owned(),
    };
    marks.map(written).chain(channels.map(|open| (*open).to_owned())).collect()
}

/// The family's openers again and again, text after each of them, and the hard texts that hold one.
fn of_family(name: &'static str) -> Vec<Hard> {
    let openers = openers(name);
    let holds = |(begin, again): &&(&str, &str)| {
        let text = format!("{begin}{again}");
        openers.iter().any(|opener| text.contains(opener.trim_end_matches('>')))
    };
    let again = openers.iter().flat_map(|opener| [("", opener.as_str()), (opener, "a\n")]);
    let texts = again.chain(HARD.iter().filter(holds).copied());
    texts.map(|text| Hard::new(name, text, SIZE, PUSH)).collect()
}

#[test]
fn every_family_reads_a_long_answer_in_linear_time() {
    assert_eq!(dear(&names().flat_map(of_family).collect::<Vec<_>>()), [] as [&str; 0]);
}

#[test]
fn a_long_answer_is_read_in_linear_time() {
    for push in [PUSH, usize::MAX] {
        let hard = HARD.iter().chain(HARD_BY_DEFAULT).map(|&text| Hard::new("default", text, 4 * SIZE, push));
        assert_eq!(dear(&hard.collect::<Vec<_>>()), [] as [&str; 0]);
    }
}

#[test]
fn what_is_held_back_for_long_costs_the_same_for_each_byte() {
    // 16 times the text: 16 where all of it is read again with each push; what else runs may have taken the caches from one
    let steep = HELD.iter().filter(|(name, text)| {
        let cost = |size| Hard::new(name, *text, size, PUSH).cost();
        (0..4).all(|_| cost(16 * SIZE) > 4.0 * cost(SIZE))
    });
    assert_eq!(steep.map(|(name, text)| format!("{name}: {}", text.0)).collect::<Vec<_>>(), [] as [&str; 0]);
}
