"""A small MCP server over stdio whose tools misbehave on request."""

import itertools
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

MODERN = "2026-07-28"
# the generation that the first message settles; a server of both keeps to it
generation = {"modern": "modern", "legacy": "legacy"}.get(mode)
speaks = {"modern": ["modern"], "dual": ["modern", "legacy"], "slow_dual": ["modern", "legacy"], "slow_both": ["modern", "legacy"]}.get(mode, ["legacy"])
lock = threading.Lock()
tools = ["echo", "exit", "hang", "steps", "backwards", "grow", "grow_silently", "big", "big_tail", "cancelled", "odd", "leak", "leak_error", "leak_exit", "task", "ask", "ask_blindly", "ask_roots", "ask_for_ever", "ask_url", "ask_twice", "visit_first", "withdraw", "take_back", "withdraw_all", "meta", "half", "ids", "strange", "bytes", "uninvited"]
cancelled = []
refused = []
in_flight = []


def send(message):
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def answer(id, result):
    if generation == "modern":
        result.setdefault("resultType", "complete")
    send({"jsonrpc": "2.0", "id": id, "result": result})


def refuse(id, code, message, data=None):
    send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}})


def text(id, value):
    answer(id, {"content": [{"type": "text", "text": value}]})


def changed():
    params = {}
    if generation == "modern":
        if subscription is None:
            return
        params = {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}}
    send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params})


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
        # the one thing that is ever heard of it
        progress(params, 1)
    elif name == "steps":
        for step in range(arguments["count"]):
            while os.path.getsize(arguments["gate"]) <= step:
                time.sleep(0.005)
            progress(params, step + 1)
        text(id, "stepped")
    elif name == "backwards":
        for value in (1, 3, 2, 3, 4):
            progress(params, value)
        text(id, "done")
    elif name == "grow":
        tools.append("grown")
        for _ in range(arguments.get("times", 1)):
            changed()
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
        while len(cancelled) < arguments["least"]:
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
    elif name == "task":
        answer(id, {"resultType": "task", "taskId": "1", "status": "working"})
    elif name in ("ask", "ask_blindly", "ask_roots", "ask_for_ever", "ask_url", "ask_twice"):
        ask(id, name, params)
    elif name == "withdraw":
        question = {"message": "Who?", "requestedSchema": FORM}
        send({"jsonrpc": "2.0", "id": "withdrawn", "method": "elicitation/create", "params": question})
        # once it has reached somebody
        taken_back.wait()
        send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "withdrawn"}})
        progress(params, 1)
    elif name == "take_back":
        taken_back.set()
        text(id, "done")
    elif name == "withdraw_all":
        for number in range(arguments["times"]):
            send({"jsonrpc": "2.0", "id": "w%d" % number, "method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": FORM}})
            send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "w%d" % number}})
        waiting = questions["ping"] = threading.Event()
        send({"jsonrpc": "2.0", "id": "ping", "method": "ping"})
        waiting.wait()
        text(id, json.dumps(waiting.answer))
    elif name == "visit_first":
        visits.append(id)
        if len(visits) == 1:
            visit = {"mode": "url", "elicitationId": "e1", "url": "https://shop.example/pay", "message": "Pay first"}
            refuse(id, -32042, "a payment is missing", {"elicitations": [visit]})
            send({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e1"}})
        else:
            text(id, "paid")
    elif name == "meta":
        text(id, json.dumps(params["_meta"], sort_keys=True))
    elif name == "half":
        progress(params, 1)
        sys.stdout.write('{"jsonrpc":"2.0","id":%d,"result":{"content":[' % id)
        sys.stdout.flush()
        if arguments.get("exit"):
            os._exit(5)
    elif name == "ids":
        # of nobody, of another type, of none; then its own, twice
        for other in (id + 1000, str(id) + "x", None, -1, [id], {"id": id}):
            send({"jsonrpc": "2.0", "id": other, "result": {"content": [{"type": "text", "text": "not yours"}]}})
        text(id, "first")
        text(id, "second")
    elif name == "strange":
        raw = {
            "deep": '{"jsonrpc":"2.0","id":%d,"result":' % id + "[" * 10000 + "]" * 10000 + "}",
            "twice": '{"jsonrpc":"2.0","id":%d,"result":{"content":[]},"result":{"content":[{"type":"text","text":"last"}]}}' % id,
            "infinite": '{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":1e400}}' % id,
            "huge": '{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":%s}}' % (id, "9" * 400),
        }[arguments["how"]]
        with lock:
            sys.stdout.write(raw + "\n")
            sys.stdout.flush()
        # after it, so that whoever reads this has read that
        progress(params, 1)
    elif name == "bytes":
        with lock:
            sys.stdout.buffer.write(b'\xff\xfe\x00 not text\n')
            sys.stdout.buffer.write(('{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\\u0000b\u2028c"}]}}\r\n' % id).encode())
            sys.stdout.buffer.flush()
    elif name == "uninvited":
        for number in range(arguments["times"]):
            send({"jsonrpc": "2.0", "id": "s%d" % number, "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
        while len(refused) < arguments["answers"]:
            time.sleep(0.005)
        text(id, str(set(refused)))
    elif name == "odd":
        answer(id, {"content": [{"type": "hologram", "data": 1}, {"type": "text", "text": "seen"}], "isError": True})
    else:
        text(id, json.dumps(arguments, sort_keys=True))


FORM = {"type": "object", "properties": {"name": {"type": "string", "default": "hay"}}, "required": ["name"]}
BLANK = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
questions = {}
taken_back = threading.Event()
visits = []


def ask(id, name, params):
    """Asks a person as the generation does: inside the result, or by a request of its own."""
    schema = BLANK if name == "ask_blindly" else FORM
    question = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": schema}}
    if name == "ask_roots":
        question = {"method": "roots/list"}
    if name == "ask_url":
        question["params"] = {"mode": "url", "url": params["arguments"]["url"], "elicitationId": "e", "message": "Log in"}
    if name == "ask_twice" and generation == "modern":
        if "inputResponses" in params:
            text(id, json.dumps(params["inputResponses"], sort_keys=True))
        else:
            answer(id, {"resultType": "input_required", "inputRequests": {"a": question, "b": question}, "requestState": ""})
        return
    if generation == "legacy":
        waiting = threading.Event()
        questions["question-%d" % id] = waiting
        send({"jsonrpc": "2.0", "id": "question-%d" % id, **question})
        waiting.wait()
        text(id, json.dumps(waiting.answer, sort_keys=True))
    elif "inputResponses" not in params or name == "ask_for_ever":
        answer(id, {"resultType": "input_required", "inputRequests": {"who": question}, "requestState": "state \u00e9=="})
    else:
        assert params["requestState"] == "state \u00e9==", params
        text(id, json.dumps(params["inputResponses"]["who"], sort_keys=True))


def listed(cursor):
    page = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools]}
    if generation == "modern":
        page.update(ttlMs=0, cacheScope="private")
    if mode == "endless":
        number = int(cursor or "0")
        page = {"tools": [{"name": "tool%d" % number, "inputSchema": {"type": "object"}}], "nextCursor": str(number + 1)}
    if mode == "many":
        page = {"tools": [{"name": "tool%d" % number, "inputSchema": {"type": "object"}} for number in range(3000)]}
    if mode == "bad_tools":
        page["tools"] += [
            {"name": "long", "description": "x" * 100000, "inputSchema": {"type": "object"}},
            {"name": "list_schema", "inputSchema": []},
            {"name": "text_schema", "inputSchema": "object"},
            {"inputSchema": {"type": "object"}},
            {"name": "remote", "inputSchema": {"type": "object", "$ref": "http://127.0.0.1:9/schema"}},
            {"name": "echo", "inputSchema": {"type": "object"}},
            {"name": "none"},
        ]
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

messages = sys.stdin
if mode in ("slow_dual", "slow_both") and len(open(starts).readlines()) == 1:
    # so slow to start for the first time that both first messages wait for it when it begins to read
    messages = itertools.chain([sys.stdin.readline(), sys.stdin.readline()], sys.stdin)


def settle(method, params):
    """What the message makes of the connection; None if it is refused."""
    wanted = "modern" if MODERN == params.get("_meta", {}).get("io.modelcontextprotocol/protocolVersion") else "legacy"
    if method == "notifications/initialized" or method == "notifications/cancelled":
        return generation
    if wanted not in speaks or (generation not in (None, wanted) and mode != "slow_both"):
        return None
    return wanted


subscription = None
for line in messages:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params", {})
    if method is None:
        waiting = questions.pop(id, None)
        if waiting is None:
            if "error" in message:
                refused.append(message["error"]["code"])
            continue
        waiting.answer = message["result"] if "result" in message else message["error"]
        waiting.set()
        continue
    settled = settle(method, params)
    if settled is None and id is not None:
        if mode == "mute":
            continue
        if mode == "quits":
            os._exit(4)
        if speaks == ["legacy"]:
            refuse(id, -32601, "Method not found")
        else:
            refuse(id, -32022, "the connection speaks %s" % (generation or speaks[0]), {"supported": [MODERN]})
        continue
    generation = settled or generation
    if method == "server/discover":
        answer(id, {"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}, "ttlMs": 0, "cacheScope": "private",
                    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "peer", "version": "2"}}})
    elif method == "initialize":
        version = params["protocolVersion"]
        assert set(params["capabilities"]) <= {"elicitation"}, "nothing else is declared"
        answer(id, {"protocolVersion": version, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "peer", "version": "1"}})
    elif method == "tools/list":
        if starts != "-":
            with open(starts + ".lists", "a") as file:
                print("list", file=file)
        answer(id, listed(params.get("cursor")))
    elif method == "tools/call":
        threading.Thread(target=call, args=(id, params), daemon=True).start()
    elif method == "subscriptions/listen":
        subscription = id
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta, "notifications": params["notifications"]}})
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    elif id is not None:
        refuse(id, -32601, "Method not found")
