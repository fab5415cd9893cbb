use super::*;

#[test]
fn each_kind_of_token_has_its_price() {
    let price = Price { input: 2.0, output: 10.0, cached: 0.2, cache_written: 2.5 };
    let usage = Usage {
        input: 1_000_000,
        output: 100_000,
        cached: 400_000,
        cache_written: 100_000,
        reasoning: 50_000,
    };
    let cost = price.of(&usage);
    assert!((cost - (1.0 + 1.0 + 0.08 + 0.25)).abs() < 1e-9, "{cost}");
    assert!(Price::FREE.of(&usage).abs() < f64::EPSILON);
    let odd = Usage { input: 1, cached: 5, ..Usage::default() };
    assert!(price.of(&odd) >= 0.0, "counts that contradict each other make nobody rich");
}

#[test]
fn a_model_is_shown_images_by_its_provider_or_its_name() {
    for (provider, model, shown) in [
        (Provider::Openai, "gpt-4o", true),
        (Provider::Openai, "gpt-3.5-turbo", false),
        (Provider::Openai, "somebody/unknown", true),
        (Provider::Anthropic, "claude-opus-5", true),
        (Provider::Gemini, "gemini-3-pro", true),
        (Provider::Ollama, "llama3.1:8b", false),
        (Provider::Ollama, "LLaVA:13b", true),
        (Provider::Ollama, "qwen2.5vl:7b", true),
        (Provider::Universal, "Qwen/Qwen2.5-7B-Instruct", false),
        (Provider::Universal, "Qwen/Qwen2.5-VL-7B-Instruct", true),
        (Provider::Demo, "demo", false),
    ] {
        assert_eq!(provider.shows_images(model), shown, "{model}");
    }
}
