"""A FastMCP server behind its own authorization server, where everybody who asks agrees: `fastmcp_oauth.py PORT http|sse`."""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider

port = int(sys.argv[1])
provider = InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{port}",
    client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["read"], default_scopes=["read"]),
    revocation_options=RevocationOptions(enabled=True),
    required_scopes=["read"],
)
mcp = FastMCP("guarded", auth=provider)


@mcp.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


if __name__ == "__main__":
    mcp.run(transport=sys.argv[2], host="127.0.0.1", port=port, show_banner=False)
