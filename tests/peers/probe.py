"""An MCP server that tries what it is told to, and says what came of it."""

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# numbers of system calls, on x86-64 and on arm64
CALLS = {
    "ptrace": (101, 117),
    "mount": (165, 40),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "process_vm_readv": (310, 270),
    "perf_event_open": (298, 241),
}
NEW_USER = 0x10000000


def call(name):
    number = CALLS[name][0 if platform.machine() == "x86_64" else 1]
    # 16: `PTRACE_ATTACH`, to nobody
    first = {"unshare": NEW_USER, "ptrace": 16}.get(name, 0)
    if LIBC.syscall(number, first, 0, 0, 0, 0) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return "done"


def connect(family, kind, to):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(to)
    return "connected"


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()[:200]


def write(path):
    with open(path, "a", encoding="utf-8") as file:
        file.write("x")
    return "written"


def listen(port):
    with socket.create_server(("127.0.0.1", int(port))):
        return "listening"


def listen_anywhere(_):
    with socket.socket() as one:
        one.listen()
        return "listening"


def close_to_all(path):
    os.chmod(path, 0)
    return "changed"


def date_back(path):
    os.utime(path, (0, 0))
    return "changed"


DOING = {
    "read": read,
    "write": write,
    "list": lambda path: str(len(os.listdir(path))),
    "remove": os.remove,
    "run": lambda path: subprocess.run([path], capture_output=True, check=True).stdout.decode(),
    "tcp": lambda port: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(port))),
    "udp": lambda port: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", int(port))),
    "unix": lambda path: connect(socket.AF_UNIX, socket.SOCK_STREAM, path),
    "listen": listen,
    "accept": listen_anywhere,
    "chmod": close_to_all,
    "utime": date_back,
    "call": call,
    "processes": lambda _: " ".join(sorted(name for name in os.listdir("/proc") if name.isdigit())),
    "user": lambda _: f"{os.getuid()} {os.getgid()}",
    "rights": lambda _: next(line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")),
}


def attempt(what):
    doing, _, at = what.partition(" ")
    try:
        return DOING[doing](at)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def answer(message):
    method = message.get("method")
    if method == "initialize":
        return {
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "probe", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": "try", "description": "Tries.", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        tried = {what: attempt(what) for what in message["params"]["arguments"]["what"]}
        for what, came in tried.items():
            print(f"{what}: {came}", file=sys.stderr, flush=True)
        return {"content": [{"type": "text", "text": json.dumps(tried)}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    result = answer(message)
    if result is None:
        reply["error"] = {"code": -32601, "message": "no such method"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
