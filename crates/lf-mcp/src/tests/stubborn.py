"""A small MCP server over stdio that has to be supervised: its tools break it in ways that last."""

import json
import os
import subprocess
import sys
import threading
import time

starts = sys.argv[1]
mode = sys.argv[2] if len(sys.argv) > 2 else ""
with open(starts, "a") as file:
    print(os.getpid(), file=file)

lock = threading.Lock()
names = ["echo", "slow", "deafen", "chatter", "complain", "outdated", "exit", "fade", "eat", "fork", "flood", "swallow", "images"]
deaf = threading.Event()


def send(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def text(id, value):
    result = {"content": [{"type": "text", "text": value}]}
    send({"jsonrpc": "2.0", "id": id, "result": complete(result)})


def complete(result):
    return {"resultType": "complete", **result} if mode == "modern" else result


def call(id, name, arguments):
    if name == "slow":
        time.sleep(arguments["seconds"])
        text(id, "slow")
    elif name == "deafen":
        # nothing more is read; what is running goes on
        deaf.set()
        text(id, "deaf")
    elif name == "chatter":
        for number in range(arguments["lines"]):
            with lock:
                print("chatter %d %s" % (number, arguments.get("text", "")), flush=True)
        text(id, "done")
    elif name == "complain":
        # in pieces that a reader sees one by one
        for piece in arguments["pieces"]:
            os.write(2, piece.encode())
            time.sleep(0.02)
        text(id, "done")
    elif name == "outdated":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32022, "message": "other revision", "data": {"supported": ["2026-07-28"]}}})
    elif name == "exit":
        os._exit(arguments.get("status", 3))
    elif name == "fade":
        # as where the machine takes its time between the end of the pipes and that of the process
        os.close(1)
        time.sleep(0.3)
        os.write(2, b"last words\n")
        os._exit(5)
    elif name == "eat":
        eaten = []
        try:
            while True:
                eaten.append(bytearray(16 << 20))
        except MemoryError:
            eaten.clear()
            print("MemoryError", file=sys.stderr, flush=True)
            os._exit(1)
    elif name == "fork":
        started = []
        try:
            while len(started) < arguments["processes"]:
                started.append(subprocess.Popen(["sleep", str(arguments["seconds"])], start_new_session=True))
            text(id, "all of them")
        except OSError as error:
            text(id, "only %d: %s" % (len(started), error))
    elif name == "flood":
        # more than anybody takes: each a message of its own
        for number in range(arguments["times"]):
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        text(id, "done")
    elif name == "images":
        items = [{"type": "text", "text": "word"}] * arguments["items"]
        items += [{"type": "image", "mimeType": "text/nonsense", "data": "/// no base64 ///"}]
        send({"jsonrpc": "2.0", "id": id, "result": complete({"content": items})})
    else:
        text(id, json.dumps(arguments, sort_keys=True))


def described():
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    if mode == "odd_schemas":
        def odd(name, schema):
            listed.append({"name": name, "inputSchema": schema})
        odd("recursive", {"type": "object", "properties": {"a": {"$ref": "#"}}})
        odd("remote", {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:%s/schema" % os.environ["PORT"]}}})
        odd("catastrophe", {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
        odd("no_schema", {"type": "nonsense", "properties": 7})
    return {"tools": listed}


if mode == "complain_at_start":
    os.write(2, ("starting with " + os.environ["API_KEY"] + "\n").encode())

for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method == "server/discover" and mode == "modern":
        send({"jsonrpc": "2.0", "id": id, "result": complete({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})})
    elif method == "initialize" and mode != "modern":
        send({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "stubborn", "version": "1"}}})
    elif method == "tools/list":
        send({"jsonrpc": "2.0", "id": id, "result": complete(described())})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params["name"], params.get("arguments", {})), daemon=True).start()
        if params["name"] == "deafen":
            deaf.wait()
        if params["name"] in ("deafen", "fade"):
            time.sleep(1000)
    elif id is not None:
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
