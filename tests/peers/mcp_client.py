"""The official Python client at an MCP endpoint.

`mcp_client.py URL legacy|modern|auto` or `mcp_client.py stdio MODE COMMAND ARG…`; then reads steps as a JSON array from
standard input and prints what came back, as one JSON document. The steps:

- `{"list": true}`, `{"call": NAME, "arguments": {}, "cancel_after": SECONDS}`
- `{"prompts": true}`, `{"prompt": NAME, "arguments": {}}`
- `{"resources": true}`, `{"templates": true}`, `{"read": URI}`
- `{"answers": true}`, first of all: asked by the server, the client answers, and wants all messages
- `{"watch": URI}` and `{"until": TEXT}`: from then on changes are heard; wait until TEXT is in what was heard
- `{"complete": {"ref": {"type": "ref/prompt", "name": NAME}, "argument": {"name": NAME, "value": TEXT}}}`
"""

import asyncio
import json
import os
import sys

import mcp
import mcp_types
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

MODES = {"modern": "2026-07-28"}


def plain(value):
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def call(client, wanted):
    progress = []

    async def report(done, total, message):
        progress.append([done, total, message])

    running = client.call_tool(wanted["call"], wanted.get("arguments", {}), progress_callback=report)
    try:
        result = await asyncio.wait_for(running, wanted.get("cancel_after", 60))
    except asyncio.TimeoutError:
        return {"cancelled": True}
    return {"result": plain(result), "progress": progress}


async def complete(client, wanted):
    ref = wanted["ref"]
    reference = mcp_types.PromptReference if ref["type"] == "ref/prompt" else mcp_types.ResourceTemplateReference
    return await client.complete(reference(**ref), wanted["argument"])


class Ears:
    """What is heard outside of requests, and what the server asks."""

    def __init__(self):
        self.heard = []
        self.more = asyncio.Event()

    def hear(self, text):
        self.heard.append(text)
        self.more.set()

    async def message(self, message):
        if isinstance(message, Exception):
            return
        root = getattr(message, "root", message)
        method = getattr(root, "method", None)
        if isinstance(method, str) and method.startswith("notifications/") and "message" not in method:
            self.hear(f"{method} {getattr(getattr(root, 'params', None), 'uri', '')}".strip())

    async def log(self, params):
        self.hear(f"{params.level}: {params.data}")

    async def sample(self, context, params):
        self.hear("sampling/createMessage")
        said = mcp_types.TextContent(type="text", text="sampled hay")
        return mcp_types.CreateMessageResult(role="assistant", content=said, model="farm", stop_reason="endTurn")

    async def elicit(self, context, params):
        self.hear("elicitation/create")
        fields = getattr(params, "requested_schema", {}).get("properties", {})
        content = {name: field.get("default", "hay") for name, field in fields.items()}
        return mcp_types.ElicitResult(action="accept", content=content)

    async def roots(self, context):
        self.hear("roots/list")
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri="file:///hay", name="hay")])

    async def watch(self, client, uri):
        """Hears of changes: of this resource, and of all lists."""
        if client.protocol_version < "2026":
            await client.subscribe_resource(uri)
            return
        ready = asyncio.Event()

        async def listen():
            lists = {"tools_list_changed": True, "prompts_list_changed": True, "resources_list_changed": True}
            async with client.listen(resource_subscriptions=[uri], **lists) as events:
                ready.set()
                async for event in events:
                    self.hear(repr(event))

        self.listening = asyncio.ensure_future(listen())
        await ready.wait()

    async def until(self, text):
        async with asyncio.timeout(20):
            while not any(text in heard for heard in self.heard):
                self.more.clear()
                await self.more.wait()

    def answering(self):
        return {
            "sampling_callback": self.sample,
            "elicitation_callback": self.elicit,
            "list_roots_callback": self.roots,
            "logging_callback": self.log,
            "log_level": "debug",
            "message_handler": self.message,
        }


async def step(client, wanted, ears):
    try:
        if "answers" in wanted:
            if client.protocol_version < "2026":
                return plain(await client.set_logging_level("debug"))
            return {}
        if "watch" in wanted:
            return await ears.watch(client, wanted["watch"])
        if "until" in wanted:
            return await ears.until(wanted["until"])
        if "call" in wanted:
            return await call(client, wanted)
        if "list" in wanted:
            return plain(await client.list_tools())
        if "prompts" in wanted:
            return plain(await client.list_prompts())
        if "prompt" in wanted:
            return plain(await client.get_prompt(wanted["prompt"], wanted.get("arguments", {})))
        if "resources" in wanted:
            return plain(await client.list_resources())
        if "templates" in wanted:
            return plain(await client.list_resource_templates())
        if "read" in wanted:
            return plain(await client.read_resource(wanted["read"]))
        if "complete" in wanted:
            return plain(await complete(client, wanted["complete"]))
    except mcp.MCPError as error:
        return {"error": error.error.code, "message": error.error.message}
    raise ValueError(f"no such step: {wanted}")


async def main():
    target, mode, *command = sys.argv[1:]
    if target == "stdio":
        target = stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)))
    steps = json.load(sys.stdin)
    ears = Ears()
    answering = ears.answering() if steps and "answers" in steps[0] else {}
    async with Client(target, mode=MODES.get(mode, mode), **answering) as client:
        seen = {"protocol": client.protocol_version}
        seen["server"] = plain(client.server_info) if client.server_info else None
        seen["steps"] = [await step(client, wanted, ears) for wanted in steps]
        seen["heard"] = ears.heard
        if hasattr(ears, "listening"):
            ears.listening.cancel()
    print(json.dumps(seen))


asyncio.run(main())
