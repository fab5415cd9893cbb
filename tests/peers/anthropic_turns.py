"""A turn with a tool of the client's own, through the Anthropic SDK in all its ways: `anthropic_turns.py BASE_URL messages MODEL…`.

Prints a JSON document a line for each model and each way. The client's tool is `note`; its result is `noted TEXT`. The
person's message is `messages WAY MODEL`. As `anthropic_turns.py BASE_URL bad MODEL`: what the SDK makes of requests that
are wrong."""

import json
import sys

from anthropic import Anthropic, APIStatusError, beta_tool

base_url, api, *models = sys.argv[1:]
client = Anthropic(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
declared = {
    "name": "note",
    "description": "Keeps a note.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@beta_tool
def note(text: str) -> str:
    """Keeps a note.

    Args:
        text: What to keep.
    """
    return "noted " + text


def seen(message):
    def of(kind):
        return [block for block in message.content if block.type == kind]

    others = {block.type for block in message.content} - {"text", "thinking", "tool_use"}
    assert not others, others
    return {
        "text": "".join(block.text for block in of("text")),
        "reasoning": "".join(block.thinking for block in of("thinking")),
        "calls": [{"name": block.name, "arguments": block.input} for block in of("tool_use")],
        "finish": message.stop_reason,
        "usage": [
            message.usage.input_tokens,
            message.usage.output_tokens,
            message.usage.input_tokens + message.usage.output_tokens,
        ],
    }


def helper(request):
    with client.messages.stream(**request) as stream:
        shown = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert shown == "".join(block.text for block in message.content if block.type == "text"), (shown, message)
    return message


def raw(request):
    """A message put together by the client itself: each block is begun, told and ended before the next."""
    message, block, last = None, None, None
    with client.messages.create(**request, stream=True) as stream:
        for event in stream:
            last = event.type
            if event.type == "message_start":
                assert message is None, event
                message = event.message
            elif event.type == "content_block_start":
                assert block is None and event.index == len(message.content), event
                block, told = event.content_block, ""
            elif event.type == "content_block_delta":
                assert event.index == len(message.content), event
                told += getattr(event.delta, fields[event.delta.type]) if event.delta.type in fields else ""
                if event.delta.type == "signature_delta":
                    block.signature = event.delta.signature
            elif event.type == "content_block_stop":
                assert event.index == len(message.content), event
                if block.type == "tool_use":
                    block.input = json.loads(told or "{}")
                else:
                    setattr(block, block.type, told)
                message.content.append(block)
                block = None
            elif event.type == "message_delta":
                message.stop_reason = event.delta.stop_reason
                message.usage.output_tokens = event.usage.output_tokens
                message.usage.input_tokens = event.usage.input_tokens or message.usage.input_tokens
    assert block is None and last == "message_stop", (block, last)
    return message


fields = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
answers = {"whole": lambda request: client.messages.create(**request), "helper": helper, "stream": raw}


def by_hand(model, way):
    request = {
        "model": model,
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": f"messages {way} {model}"}],
        "tools": [declared],
    }
    for _ in range(4):
        message = answers[way](request)
        yield seen(message)
        if message.stop_reason != "tool_use":
            return
        request["messages"].append({"role": "assistant", "content": message.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "noted " + block.input["text"]}
            for block in message.content
            if block.type == "tool_use"
        ]
        request["messages"].append({"role": "user", "content": results})


def by_runner(model, way):
    request = {
        "model": model,
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": f"messages {way} {model}"}],
        "tools": [note],
        "max_iterations": 4,
    }
    if way == "runner-stream":
        for stream in client.beta.messages.tool_runner(**request, stream=True):
            yield seen(stream.get_final_message())
    else:
        for message in client.beta.messages.tool_runner(**request):
            yield seen(message)


def refused(**request):
    request = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100} | request
    try:
        client.messages.create(model=models[0], **request)
    except APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "message": error.message}
    return {"class": None, "message": "the request was accepted"}


if api == "bad":
    rows = {
        "messages messages": refused(messages=[{"role": "wizard", "content": "hi"}]),
        "messages tools": refused(tools="all"),
        "messages max_tokens": refused(max_tokens="many"),
    }
    print(json.dumps(rows))
    sys.exit()
ways = {"whole": by_hand, "helper": by_hand, "stream": by_hand, "runner-whole": by_runner, "runner-stream": by_runner}
for model in models:
    for way, turn in ways.items():
        row = {"model": model, "way": way, "turns": []}
        try:
            row["turns"] += turn(model, way)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(row))
