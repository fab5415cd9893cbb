"""A turn with a tool of the client's own, through the OpenAI SDK in all its ways: `openai_turns.py BASE_URL chat|responses MODEL…`.

Prints a JSON document a line for each model and each way. The client's tool is `note`; its result is `noted TEXT`. The
person's message is `API WAY MODEL`. As `openai_turns.py BASE_URL bad MODEL`: what the SDK makes of requests that are wrong."""

import json
import sys

from openai import APIStatusError, OpenAI

base_url, api, *models = sys.argv[1:]
client = OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=30)
parameters = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
note = {"name": "note", "description": "Keeps a note.", "parameters": parameters, "strict": True}


def noted(arguments):
    return "noted " + json.loads(arguments)["text"]


def calls_of(pairs):
    return [{"name": name, "arguments": json.loads(arguments)} for name, arguments in pairs]


def streamed_completion(request):
    """One completion put together from its chunks, by the client itself."""
    seen = {"ids": set(), "text": "", "reasoning": "", "finish": [], "usage": None}
    calls = {}
    with client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            seen["ids"].add(chunk.id)
            seen["usage"] = chunk.usage or seen["usage"]
            for choice in chunk.choices:
                delta = choice.delta
                seen["text"] += delta.content or ""
                seen["reasoning"] += getattr(delta, "reasoning_content", None) or ""
                seen["finish"] += [choice.finish_reason] if choice.finish_reason else []
                for part in delta.tool_calls or []:
                    call = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] = part.id or call["id"]
                    call["name"] = part.function.name or call["name"]
                    call["arguments"] += part.function.arguments or ""
    assert len(seen["ids"]) == 1 and len(seen["finish"]) == 1, seen
    calls = [calls[index] for index in sorted(calls)]
    asked = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls]
    message = {"role": "assistant", "content": seen["text"] or None}
    return message | ({"tool_calls": asked} if asked else {}), seen["reasoning"], seen["finish"][0], seen["usage"]


def completion(request, way):
    if way == "stream":
        return streamed_completion(request)
    if way == "helper":
        with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as stream:
            shown = "".join(event.delta for event in stream if event.type == "content.delta")
            answer = stream.get_final_completion()
        assert shown == (answer.choices[0].message.content or ""), (shown, answer)
    else:
        answer = client.chat.completions.create(**request)
    choice = answer.choices[0]
    reasoning = getattr(choice.message, "reasoning_content", None) or ""
    fields = {"role", "content", "tool_calls"}
    message = choice.message.model_dump(include=fields, exclude_none=True)
    for call in message.get("tool_calls", []):
        call["function"].pop("parsed_arguments", None)
    return message, reasoning, choice.finish_reason, answer.usage


def chat(model, way):
    request = {
        "model": model,
        "messages": [{"role": "user", "content": f"chat {way} {model}"}],
        "tools": [{"type": "function", "function": note}],
    }
    for _ in range(4):
        message, reasoning, finish, usage = completion(request, way)
        calls = message.get("tool_calls") or []
        yield {
            "text": message.get("content") or "",
            "reasoning": reasoning,
            "calls": calls_of((call["function"]["name"], call["function"]["arguments"]) for call in calls),
            "finish": finish,
            "usage": [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens],
        }
        if finish != "tool_calls":
            return
        request["messages"].append(message)
        for call in calls:
            result = {"role": "tool", "tool_call_id": call["id"], "content": noted(call["function"]["arguments"])}
            request["messages"].append(result)


def response(request, way):
    """The whole response, and the text as it was shown."""
    if way == "whole":
        answer = client.responses.create(**request)
        return answer, answer.output_text
    ids, shown, numbers, answer = set(), "", [], None
    if way == "helper":
        with client.responses.stream(**request) as stream:
            shown = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            return stream.get_final_response(), shown
    with client.responses.create(**request, stream=True) as stream:
        for event in stream:
            numbers.append(event.sequence_number)
            if event.type == "response.output_text.delta":
                shown += event.delta
            if hasattr(event, "response"):
                ids.add(event.response.id)
                answer = event.response
    assert len(ids) == 1 and numbers == list(range(len(numbers))), (ids, numbers)
    return answer, shown


def responses(model, way):
    """`previous-…` leaves the history to the server, `stateless-…` brings all of it along."""
    flow, how = way.split("-")
    request = {
        "model": model,
        "input": [{"role": "user", "content": f"responses {way} {model}"}],
        "tools": [{"type": "function", **note}],
    }
    if flow == "stateless":
        request |= {"store": False, "include": ["reasoning.encrypted_content"]}
    for _ in range(4):
        answer, shown = response(request, how)
        assert shown == answer.output_text, (shown, answer.output)
        calls = [item for item in answer.output if item.type == "function_call"]
        reasoning = [item for item in answer.output if item.type == "reasoning"]
        others = {item.type for item in answer.output} - {"function_call", "reasoning", "message"}
        assert not others, others
        yield {
            "text": shown,
            "reasoning": "".join(part.text for item in reasoning for part in (item.summary or item.content or [])),
            "calls": calls_of((call.name, call.arguments) for call in calls),
            "finish": answer.status,
            "usage": [answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens],
        }
        if not calls:
            return
        results = [{"type": "function_call_output", "call_id": call.call_id, "output": noted(call.arguments)} for call in calls]
        if flow == "previous":
            request |= {"previous_response_id": answer.id, "input": results}
        else:
            request["input"] += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
            request["input"] += results


def refused(send, **request):
    try:
        send(model=models[0], **request)
    except APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code, "message": error.message}
    return {"class": None, "message": "the request was accepted"}


ways = {
    "chat": (chat, ["whole", "stream", "helper"]),
    "responses": (responses, [f"{flow}-{how}" for flow in ("stateless", "previous") for how in ("whole", "stream", "helper")]),
}
if api == "bad":
    user = {"role": "user", "content": "hi"}
    rows = {
        "chat messages": refused(client.chat.completions.create, messages=[{"role": "wizard", "content": "hi"}]),
        "chat tools": refused(client.chat.completions.create, messages=[user], tools="all"),
        "responses input": refused(client.responses.create, input=[{"role": "wizard", "content": "hi"}]),
        "responses tools": refused(client.responses.create, input=[user], tools="all"),
    }
    print(json.dumps(rows))
    sys.exit()
turn, names = ways[api]
for model in models:
    for way in names:
        row = {"model": model, "way": way, "turns": []}
        try:
            row["turns"] += turn(model, way)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(row))
