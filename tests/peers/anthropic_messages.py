"""A conversation through the Anthropic SDK: `anthropic_messages.py BASE_URL stream|whole TEXT`.

The model may call the client's tool `note`; its result is `noted TEXT`. Prints one JSON document with everything the SDK
saw, message by message."""

import json
import sys

import anthropic

base_url, how, text = sys.argv[1:4]
client = anthropic.Anthropic(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
tool = {
    "name": "note",
    "description": "Keeps a note.",
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
messages = [{"role": "user", "content": text}]
seen = []

for _ in range(4):
    request = {"model": "assistant", "max_tokens": 1000, "messages": messages, "tools": [tool]}
    if how == "stream":
        with client.messages.stream(**request) as stream:
            shown = "".join(stream.text_stream)
            message = stream.get_final_message()
    else:
        message = client.messages.create(**request)
        shown = "".join(block.text for block in message.content if block.type == "text")
    seen.append(
        {
            "id": message.id,
            "text": shown,
            "stop_reason": message.stop_reason,
            "usage": message.usage.model_dump(include={"input_tokens", "output_tokens"}),
            "calls": [
                {"name": block.name, "input": block.input} for block in message.content if block.type == "tool_use"
            ],
        }
    )
    if message.stop_reason != "tool_use":
        break
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "noted " + block.input["text"]}
        for block in message.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})

print(json.dumps(seen))
