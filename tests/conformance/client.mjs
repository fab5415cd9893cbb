// The client that the conformance suite drives: what a scenario says in its environment variables becomes ordinary
// arguments of `lf mcp probe`. The program is named by `LF_BIN`.
//
// usage: node client.mjs URL

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const url = process.argv[2];
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? "";
const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? "auto";
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? "{}");
const home = mkdtempSync(join(tmpdir(), "lf-home-"));

function probe(...more) {
  const { PATH, LF_BIN, LF_LOG } = process.env;
  const args = ["mcp", "probe", url, "--json", "--timeout", "25s", "--protocol", revision, ...more];
  const env = { PATH, HOME: home, LF_DATA_DIR: join(home, "data"), ...(LF_LOG && { LF_LOG }) };
  const { status, stdout, stderr } = spawnSync(LF_BIN, args, { env, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  process.stderr.write(stderr);
  process.stdout.write(stdout);
  return { status: status ?? 1, report: status === null || status === 2 ? {} : JSON.parse(stdout) };
}

const call = (tool, args) => ["--call", tool, "--arguments", JSON.stringify(args ?? {})];

// How this client gets in, where the scenario is about that.
function access() {
  if (!scenario.startsWith("auth/")) return [];
  const flags = ["--client-metadata", "https://conformance-test.local/client-metadata.json"];
  if (context.client_id) flags.push("--client-id", context.client_id);
  if (context.client_secret) flags.push("--client-secret", context.client_secret);
  if (context.private_key_pem) {
    const key = join(home, "key.pem");
    writeFileSync(key, context.private_key_pem, { mode: 0o600 });
    flags.push("--private-key", key);
  }
  const isOwn = scenario.startsWith("auth/client-credentials");
  return [...flags, isOwn ? "--client-credentials" : "--follow-authorization"];
}

function run() {
  const flags = access();
  if (context.toolCalls) {
    return probe(...flags, ...context.toolCalls.flatMap(({ name, arguments: args }) => call(name, args))).status;
  }
  if (scenario === "json-schema-2020-12-preservation") {
    // What was listed is to be sent back as it is.
    const { report } = probe(...flags);
    const echo = report.tools?.find((tool) => tool.name.includes("echo"));
    const rich = report.tools?.find((tool) => tool !== echo);
    return probe(...flags, ...call(echo?.name ?? "", { schema: rich?.inputSchema })).status;
  }
  return probe(...flags, "--all").status;
}

try {
  process.exitCode = run();
} finally {
  rmSync(home, { recursive: true, force: true });
}
