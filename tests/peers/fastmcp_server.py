"""A small FastMCP server. `fastmcp_server.py` speaks over stdio, `fastmcp_server.py http|sse PORT` over the network."""

import sys

from fastmcp import Context, FastMCP

mcp = FastMCP("peer")


@mcp.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@mcp.tool
def fail(reason: str) -> str:
    """Always fails."""
    raise ValueError(reason)


@mcp.tool
async def count(to: int, ctx: Context) -> str:
    """Counts, and reports each number."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
    return f"counted to {to}"


@mcp.prompt
def feed(animal: str) -> str:
    """How to feed an animal."""
    return f"Give the {animal} some hay."


@mcp.resource("barn://stock")
def stock() -> str:
    """What there is."""
    return "12 bales"


@mcp.resource("barn://stalls/{number}")
def stall(number: str) -> str:
    """Who lives there."""
    return f"stall {number} is empty"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        mcp.run(transport=sys.argv[1], host="127.0.0.1", port=int(sys.argv[2]), show_banner=False)
    else:
        mcp.run(show_banner=False)
