"""One turn through the OpenAI SDK: `openai_chat.py BASE_URL stream|whole TEXT`.

Prints one JSON document with everything the SDK saw of the turn."""

import json
import sys

from openai import OpenAI

base_url, how, text = sys.argv[1:4]
client = OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
request = {"model": "assistant", "messages": [{"role": "user", "content": text}]}
seen = {"ids": [], "text": "", "finish_reasons": [], "tool_calls": 0, "usage": None}

if how == "stream":
    with client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            if chunk.id not in seen["ids"]:
                seen["ids"].append(chunk.id)
            if chunk.usage:
                seen["usage"] = chunk.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})
            for choice in chunk.choices:
                seen["text"] += choice.delta.content or ""
                seen["tool_calls"] += len(choice.delta.tool_calls or [])
                if choice.finish_reason:
                    seen["finish_reasons"].append(choice.finish_reason)
else:
    answer = client.chat.completions.create(**request)
    choice = answer.choices[0]
    seen["ids"].append(answer.id)
    seen["text"] = choice.message.content
    seen["finish_reasons"].append(choice.finish_reason)
    seen["tool_calls"] = len(choice.message.tool_calls or [])
    seen["usage"] = answer.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"})

print(json.dumps(seen))
