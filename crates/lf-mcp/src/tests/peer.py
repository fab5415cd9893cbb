"""A small MCP server over stdio whose tools misbehave on request."""

import json
import os
import sys
import threading
import time

starts = sys.argv[1] if len(sys.argv) > 1 else "-"
mode = sys.argv[2] if len(sys.argv) > 2 else ""
if starts != "-":
    with open(starts, "a") as file:
        print(os.getpid(), file=file)

lock = threading.Lock()
tools = ["echo", "exit", "hang", "slow", "steps", "backwards", "grow", "grow_silently", "big", "big_tail", "cancelled", "odd", "leak", "leak_error", "leak_exit"]
cancelled = []
in_flight = []


def send(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def answer(id, result):
    send({"jsonrpc": "2.0", "id": id, "result": result})


def text(id, value):
    answer(id, {"content": [{"type": "text", "text": value}]})


def progress(params, value):
    token = params["_meta"]["progressToken"]
    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": value}})


def call(id, params):
    name, arguments = params["name"], params.get("arguments", {})
    in_flight.append(id)
    if name not in tools:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "Unknown tool: " + name}})
    elif name == "exit":
        while len(in_flight) < arguments.get("together", 1):
            time.sleep(0.005)
        print("last words", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "hang":
        return
    elif name == "slow":
        time.sleep(arguments["seconds"])
        text(id, "slow")
    elif name == "steps":
        for step in range(arguments["count"]):
            time.sleep(arguments["seconds"])
            progress(params, step + 1)
        text(id, "stepped")
    elif name == "backwards":
        for value in (1, 3, 2, 3, 4):
            progress(params, value)
        text(id, "done")
    elif name == "grow":
        tools.append("grown")
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        text(id, "grown")
    elif name == "grow_silently":
        tools.append("silent")
        text(id, "grown")
    elif name == "big":
        text(id, "x" * (5 << 20))
    elif name == "big_tail":
        with lock:
            sys.stdout.write('{"result":{"content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%d}\n' % ("x" * (5 << 20), id))
            sys.stdout.flush()
    elif name == "cancelled":
        while not cancelled:
            time.sleep(0.005)
        text(id, str(len(cancelled)))
    elif name == "leak":
        key = os.environ["API_KEY"]
        send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "with " + key}})
        resource = {"type": "resource", "resource": {"uri": "key:" + key, "text": key}}
        answer(id, {"content": [{"type": "hologram", "of": key}, resource], "structuredContent": {"key": key, "seen": [key]}})
    elif name == "leak_error":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "bad key " + os.environ["API_KEY"]}})
    elif name == "leak_exit":
        print("bad key " + os.environ["API_KEY"], file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "odd":
        answer(id, {"content": [{"type": "hologram", "data": 1}, {"type": "text", "text": "seen"}], "isError": True})
    else:
        text(id, json.dumps(arguments, sort_keys=True))


def listed(cursor):
    page = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    if mode == "endless":
        number = int(cursor or "0")
        page = {"tools": [{"name": "tool%d" % number, "inputSchema": {"type": "object"}}], "nextCursor": str(number + 1)}
    if mode == "same_cursor":
        page["nextCursor"] = "again"
    return page


if mode == "garbage":
    for _ in range(200):
        print("starting up ...", flush=True)
if mode == "noise":
    print("hello on stdout\n{\"not\": \"a message\"}", flush=True)
if mode == "deaf":
    time.sleep(1000)

for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "initialize":
        version = params["protocolVersion"]
        assert not params["capabilities"], "nothing is declared"
        answer(id, {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "peer", "version": "1"}})
    elif method == "tools/list":
        answer(id, listed(params.get("cursor")))
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
