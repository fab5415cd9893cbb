// The official TypeScript clients at an MCP endpoint.
//
// `mcp_client.mjs 1|2 URL legacy|auto|modern`, where 1 is the SDK of the legacy generation and 2 its successor; or
// `mcp_client.mjs 1|2 stdio MODE COMMAND ARG…`. Reads steps as a JSON array from standard input and prints what came
// back, as one JSON document: the same steps as those of mcp_client.py.

import { text } from "node:stream/consumers";

const [sdk, target, mode, ...command] = process.argv.slice(2);
const MODES = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };

async function parts() {
  if (sdk === "2") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    return { Client, StreamableHTTPClientTransport, StdioClientTransport };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  return { Client, StreamableHTTPClientTransport, StdioClientTransport };
}

async function call(client, wanted) {
  const progress = [];
  const options = {
    timeout: 60_000,
    onprogress: ({ progress: done, total, message }) => progress.push([done, total ?? null, message ?? null]),
  };
  const patience = new AbortController();
  options.signal = patience.signal;
  const timer = wanted.cancel_after && setTimeout(() => patience.abort("enough"), wanted.cancel_after * 1000);
  const params = { name: wanted.call, arguments: wanted.arguments ?? {} };
  try {
    // the old SDK has the schema of the result where the new one has the options
    const result = sdk === "2" ? await client.callTool(params, options) : await client.callTool(params, undefined, options);
    return { result, progress };
  } catch (error) {
    if (patience.signal.aborted) return { cancelled: true };
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function step(client, wanted) {
  try {
    if (wanted.list) return await client.listTools();
    if (wanted.call) return await call(client, wanted);
    if (wanted.prompts) return await client.listPrompts();
    if (wanted.prompt) return await client.getPrompt({ name: wanted.prompt, arguments: wanted.arguments ?? {} });
    if (wanted.resources) return await client.listResources();
    if (wanted.templates) return await client.listResourceTemplates();
    if (wanted.read) return await client.readResource({ uri: wanted.read });
    if (wanted.complete) return await client.complete(wanted.complete);
  } catch (error) {
    if (typeof error.code !== "number") throw error;
    // both SDKs may put the code in front of what the server said
    return { error: error.code, message: error.message.replace(/^MCP error -?\d+: /, "") };
  }
  throw new Error(`no such step: ${JSON.stringify(wanted)}`);
}

const { Client, StreamableHTTPClientTransport, StdioClientTransport } = await parts();
const client = new Client({ name: "peer", version: "1" }, sdk === "2" ? { versionNegotiation: { mode: MODES[mode] } } : {});
const transport =
  target === "stdio"
    ? new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env })
    : new StreamableHTTPClientTransport(new URL(target));
const seen = { steps: [] };
// how the old SDK tells its transport what was agreed on; it has no other way to ask
const agreed = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  seen.protocol = version;
  agreed?.(version);
};
await client.connect(transport);
if (sdk === "2") seen.protocol = client.getNegotiatedProtocolVersion();
for (const wanted of JSON.parse(await text(process.stdin))) seen.steps.push(await step(client, wanted));
await transport.terminateSession?.();
await client.close();
console.log(JSON.stringify(seen));
