"""The official Python client at an MCP endpoint.

`mcp_client.py URL legacy|modern|auto` or `mcp_client.py stdio MODE COMMAND ARG…`; then reads steps as a JSON array from
standard input and prints what came back, as one JSON document.
"""

import asyncio
import json
import sys

import mcp
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


def plain(value):
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


async def step(client, wanted):
    """One of `{"list": true}`, `{"call": NAME, "arguments": {}, "cancel_after": SECONDS}`."""
    if "list" in wanted:
        return plain(await client.list_tools())
    progress = []

    async def report(done, total, message):
        progress.append([done, total, message])

    call = client.call_tool(wanted["call"], wanted.get("arguments", {}), progress_callback=report)
    try:
        result = await asyncio.wait_for(call, wanted.get("cancel_after", 60))
    except asyncio.TimeoutError:
        return {"cancelled": True}
    except mcp.MCPError as error:
        return {"error": error.error.code, "message": error.error.message}
    return {"result": plain(result), "progress": progress}


async def main():
    target, mode, *command = sys.argv[1:]
    if target == "stdio":
        target = stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    async with Client(target, mode=mode) as client:
        seen = {"protocol": client.protocol_version}
        seen["steps"] = [await step(client, wanted) for wanted in json.load(sys.stdin)]
    print(json.dumps(seen))


asyncio.run(main())
