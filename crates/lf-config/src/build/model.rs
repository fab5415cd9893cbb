//! Entries of `runtime.models`.

use lf_core::Secret;
use lf_core::place::Reach;
use lf_core::project::{Disabled, Limits, Model, Price, Provider, ToolCallStrategy};

use super::carry::{self, Key};
use super::{ByDefault, Context, Names, Reading, broken, is_header_value, known, provider, tools};
use crate::diagnostic::{Report, did_you_mean, quote};
use crate::node::Node;
use crate::raw::{RawInput, RawModel, RawPrice, RawStrategy};
use crate::variables::{Syntax, expand};

const EXPANDED: [(&str, Syntax); 9] = [
    ("description", Syntax::Full),
    ("model", Syntax::Full),
    ("base_url", Syntax::Full),
    ("api_key", Syntax::Full),
    ("model_api_parameters", Syntax::Full),
    ("extra_body", Syntax::Full),
    ("limits", Syntax::Full),
    ("price", Syntax::Full),
    ("tools", Syntax::EnvOnly),
];

pub(super) fn read(
    name: &str,
    node: &Node,
    names: &Names<'_>,
    context: &Context<'_>,
    report: &mut Report<'_>,
) -> Result<Model, Disabled> {
    let thing = format!("model {}", quote(name));
    let expanded = expand(node, &EXPANDED, &format!("{thing} is not available"), context.variables, report);
    let mut reading = Reading::new(thing, &expanded, context, report);
    let Some(raw) = reading.raw::<RawModel>() else { return Err(broken()) };
    let servers = servers(&mut reading, names);
    let prompts = prompts(&mut reading, names);
    let limits = limits(&mut reading, &raw);
    let inline_tools = tools::read(&mut reading, raw.tools.unwrap_or_default());
    let Some(kind) = raw.provider.map(provider::provider) else { return Err(broken()) };
    if let Provider::Demo | Provider::Replay = kind {
        without_effect(&mut reading, kind);
    }
    fallback(&mut reading, name);
    let model = match (raw.model, kind) {
        (Some(model), _) => model,
        (None, Provider::Demo) => "demo".to_owned(),
        (None, Provider::Replay) => {
            reading.lacks("model", "`model` names the cassette, relative to this file: `model: turn.jsonl`");
            return Err(broken());
        }
        (None, _) => {
            reading.lacks(
                "model",
                "`model` is the provider's own name, such as `gpt-4`; `name` is what clients call it",
            );
            return Err(broken());
        }
    };
    let (api_key, from) = api_key(&mut reading, raw.api_key, kind);
    let price = price(raw.price.as_ref()).or_else(|| kind.price());
    if price.is_none() && limits.cost_usd.is_some() {
        unpriced(&mut reading, name);
    }
    let images = raw.input.map(|input| input.contains(&RawInput::Image));
    let model = Model {
        price,
        images: images.unwrap_or_else(|| kind.shows_images(&model)),
        name: name.to_owned(),
        description: raw.description,
        provider: kind,
        dialect: raw.api.map_or(kind.dialect(), provider::dialect),
        cassette: (kind == Provider::Replay).then(|| reading.context.directory.join(&model)),
        model,
        base_url: base_url(&mut reading, raw.base_url, kind),
        in_url: carry::in_url(&expanded.used),
        reach: Reach::Named,
        api_key,
        strategy: match raw.tool_call_strategy {
            None | Some(RawStrategy::NativeApi) => ToolCallStrategy::NativeApi,
            Some(RawStrategy::PromptBased) => ToolCallStrategy::PromptBased,
            Some(RawStrategy::Auto) => ToolCallStrategy::Auto,
        },
        tool_call_format: raw.tool_call_format,
        servers,
        tools: inline_tools,
        prompts,
        parameters: raw.model_api_parameters.unwrap_or_default(),
        extra_body: raw.extra_body.unwrap_or_default(),
        limits,
        fallback: raw.fallback.unwrap_or_default(),
    };
    let prompts = model.prompts.iter().filter_map(|prompt| names.prompts.used.get(prompt)).flatten();
    carry::by_model(&model, from, &expanded.used, prompts, context);
    reading.finish(model)
}

/// What only a model behind an API has.
fn without_effect(reading: &mut Reading<'_, '_, '_>, provider: Provider) {
    for key in ["api", "base_url", "api_key"] {
        if reading.expanded.node.entry(key).is_some() {
            let span = reading.expanded.node.span_of(key);
            let message = format!("`{key}` has no effect with provider `{}`", provider.name());
            reading.report.warning(&span, message).hint("leave it out");
        }
    }
}

/// Unknown names are told with all models at hand.
fn fallback(reading: &mut Reading<'_, '_, '_>, name: &str) {
    let items = reading.node("fallback").into_iter().flat_map(Node::items);
    if let Some(own) = items.into_iter().find(|item| item.as_str() == Some(name)) {
        let message = format!("model {} falls back to itself", quote(name));
        reading.report.error(&own.span, message).hint("name other models of this file");
    }
}

fn base_url(reading: &mut Reading<'_, '_, '_>, given: Option<String>, provider: Provider) -> String {
    let (Some(given), Some(node)) = (given, reading.node("base_url")) else {
        return provider::base_url(provider, |name| reading.context.variables.usual(name));
    };
    if let Some(problem) = provider::url_problem(&given)
        && let Some(diagnostic) =
            reading.wrong(node, format!("`base_url` is no URL to connect to: {problem}"))
    {
        diagnostic.hint("a URL looks like `https://host:port/v1`");
    }
    given.trim_end_matches('/').to_owned()
}

/// The key, and where it comes from.
fn api_key(
    reading: &mut Reading<'_, '_, '_>,
    given: Option<Secret>,
    provider: Provider,
) -> (Option<Secret>, Key) {
    let (Some(given), Some(node)) = (given, reading.node("api_key")) else {
        let usual = provider::api_key(provider, reading.context.variables);
        return usual.map_or((None, Key::Usual(None)), |(variable, key)| (Some(key), Key::Usual(variable)));
    };
    if !is_header_value(given.expose()) {
        reading.wrong(node, "`api_key` holds a line break or control character".to_owned());
    }
    // an empty key is none: `Authorization: Bearer ` would be refused by everybody
    ((!given.expose().is_empty()).then_some(given), Key::Written)
}

/// Names in the order of the model's list; where there is none, what the file says for that.
fn servers(reading: &mut Reading<'_, '_, '_>, names: &Names<'_>) -> Vec<String> {
    let Some(list) = reading.node("mcp_servers") else {
        return match names.by_default {
            ByDefault::All => names.servers.keys().cloned().collect(),
            ByDefault::None => Vec::new(),
        };
    };
    let mut servers = Vec::new();
    for item in list.items() {
        let Some(text) = item.as_str() else { continue };
        if names.servers.contains_key(text) {
            servers.push(text.to_owned());
        } else if names.servers_known {
            let all = names.servers.keys().map(String::as_str);
            unknown(item, "MCP server", "mcp", names.has_mcp.then_some("mcp.servers"), all, reading.report);
        }
    }
    servers
}

/// The same for prompt sets; a set that lacks a variable takes its models with it.
fn prompts(reading: &mut Reading<'_, '_, '_>, names: &Names<'_>) -> Vec<String> {
    let sets = &names.prompts.sets;
    let mut prompts = Vec::new();
    match reading.node("prompts") {
        None => prompts.extend(sets.keys().cloned()),
        Some(list) => {
            for item in list.items() {
                let Some(text) = item.as_str() else { continue };
                if sets.contains_key(text) {
                    prompts.push(text.to_owned());
                } else if names.prompts_known {
                    let all = sets.keys().map(String::as_str);
                    unknown(
                        item,
                        "prompt set",
                        "prompts",
                        names.has_prompts.then_some("prompts"),
                        all,
                        reading.report,
                    );
                }
            }
        }
    }
    for prompt in &prompts {
        reading.disabled.extend(names.prompts.missing.get(prompt).into_iter().flatten().cloned());
    }
    prompts
}

/// A name that refers to nothing. In a file without the section it is a part of a larger one, and nothing can be
/// granted by mistake; with the section it is an error.
fn unknown<'n>(
    item: &Node,
    kind: &str,
    section: &str,
    list: Option<&str>,
    names: impl Iterator<Item = &'n str> + Clone,
    report: &mut Report<'_>,
) {
    let text = item.as_str().unwrap_or_default();
    match list {
        Some(list) => report
            .error(&item.span, format!("unknown {kind} {}", quote(text)))
            .label(format!("not in `{list}`"))
            .maybe_hint(did_you_mean(text, names.clone()).or_else(|| known(names))),
        None => report
            .warning(&item.span, format!("unknown {kind} {}", quote(text)))
            .label(format!("the file has no section `{section}`"))
            .hint("the model does without it"),
    };
}

/// What is not told costs what other input does.
fn price(raw: Option<&RawPrice>) -> Option<Price> {
    let raw = raw?;
    let (input, output) = (raw.input_per_million?, raw.output_per_million?);
    Some(Price {
        input,
        output,
        cached: raw.cached_per_million.unwrap_or(input),
        cache_written: raw.cache_write_per_million.unwrap_or(input),
    })
}

/// Prices change, and a limit that is checked against a wrong one is none: they are the file's to say.
fn unpriced(reading: &mut Reading<'_, '_, '_>, name: &str) {
    let Some(limits) = reading.node("limits") else { return };
    let span = limits.span_of("cost_usd");
    let message = format!("`cost_usd` cannot be held: nobody knows what model {} costs", quote(name));
    reading.report.error(&span, message).hint(PRICE_HINT);
}

pub(super) const PRICE_HINT: &str =
    "give the model its `price: {input_per_million: …, output_per_million: …}`, in US dollars";

fn limits(reading: &mut Reading<'_, '_, '_>, raw: &RawModel) -> Limits {
    let defaults = Limits::default();
    let Some(raw) = &raw.limits else { return defaults };
    let size =
        |value: Option<u32>, default: usize| value.and_then(|value| value.try_into().ok()).unwrap_or(default);
    Limits {
        rounds: raw.rounds.unwrap_or(defaults.rounds),
        parallel_calls: size(raw.parallel_calls, defaults.parallel_calls),
        result_tokens: size(raw.result_tokens, defaults.result_tokens),
        result_bytes: size(raw.result_bytes, defaults.result_bytes),
        context_tokens: size(raw.context_tokens, defaults.context_tokens),
        turn_timeout: reading.duration(Some("limits"), "turn_timeout", defaults.turn_timeout),
        final_timeout: reading.duration(Some("limits"), "final_timeout", defaults.final_timeout),
        tokens: raw.tokens,
        cost_usd: raw.cost_usd,
        approval_timeout: reading.duration(Some("limits"), "approval_timeout", defaults.approval_timeout),
        queue_timeout: reading.duration(Some("limits"), "queue_timeout", defaults.queue_timeout),
        repeat_calls: raw.repeat_calls.unwrap_or(defaults.repeat_calls),
    }
}
