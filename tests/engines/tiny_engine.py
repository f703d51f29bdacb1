"""A tiny server in the shape of vLLM for tests of starting, stopping and restoring. Boots in a few tens of milliseconds.

Run as a script. Standard library alone; imports nothing of audition.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

WORKER = """
import signal, sys, time
for number in filter(None, sys.argv[1].split(",")):
    signal.signal(int(number), signal.SIG_IGN)
while True:
    time.sleep(3600)
"""


ANSWERING = """
import sys
for line in sys.stdin:
    sys.stdout.write(line)
    sys.stdout.flush()
"""
"""A worker that every completion passes through, as an engine core is: while it is stopped, completions wait."""

BEHIND: list[subprocess.Popen[str]] = []
TURN = threading.Lock()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--answer", default="one two three")
    parser.add_argument("--boot-s", type=float, default=0.0)
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--worker", choices=["none", "session", "own-session", "bare", "answers"], default="none")
    parser.add_argument("--stubborn-worker", action="store_true", help="the worker ignores SIGTERM and outlives the server")
    parser.add_argument("--exit-at-boot", type=int, default=None)
    parser.add_argument("--exit-after-s", type=float, default=None)
    parser.add_argument("--hang-at-boot", action="store_true")
    parser.add_argument("--chatty", action="store_true", help="prints while booting")
    parser.add_argument("--broken", action="store_true", help="answers /v1/models, but completions fail")
    parser.add_argument("--ledger", default="")
    parser.add_argument("--hold-mib", type=int, default=0)
    return parser.parse_args()


def start_worker(options: argparse.Namespace) -> None:
    """session: inherits everything. own-session: setsid. answers: completions pass through it. bare: own environment and output
    cleared (as setproctitle does), same session."""
    ignored = str(int(signal.SIGTERM)) if options.stubborn_worker else ""
    if options.worker == "answers":
        command = [sys.executable, "-I", "-S", "-c", ANSWERING, "tiny-worker"]
        BEHIND.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return
    command = [sys.executable, "-I", "-S", "-c", WORKER, ignored]
    if options.worker == "own-session":
        subprocess.Popen(command, start_new_session=True)
    elif options.worker == "bare":
        subprocess.Popen(command, env={})
    else:
        subprocess.Popen(command)


def body_of(connection: socket.socket) -> tuple[str, str, dict[str, object]] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    method, path, _ = lines[0].split(" ")
    length = next((int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return method, path, json.loads(body) if body else {}


def answer(options: argparse.Namespace, path: str, body: dict[str, object]) -> tuple[int, str, bytes]:
    if path == "/health":
        return 200, "text/plain", b""
    if path == "/v1/models":
        return 200, "application/json", json.dumps({"object": "list", "data": [{"id": options.model}]}).encode()
    if path == "/metrics":
        return 200, "text/plain", b'vllm:num_requests_running{engine="0"} 0.0\n'
    if path not in ("/v1/completions", "/v1/chat/completions"):
        return 404, "application/json", b'{"error": {"message": "not found"}}'
    if options.broken:
        return 500, "application/json", b'{"error": {"message": "broken on purpose"}}'
    if body.get("model") != options.model:
        return 404, "application/json", b'{"error": {"message": "no such model"}}'
    for worker in BEHIND:
        assert worker.stdin
        assert worker.stdout
        with TURN:
            worker.stdin.write(options.answer + "\n")
            worker.stdin.flush()
            if worker.stdout.readline() != options.answer + "\n":
                return 500, "application/json", b'{"error": {"message": "the engine core is dead"}}'
    chat = path == "/v1/chat/completions"
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    if not body.get("stream"):
        choice = {"message": {"role": "assistant", "content": options.answer}} if chat else {"text": options.answer}
        return (
            200,
            "application/json",
            json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": usage}).encode(),
        )
    events = []
    for word in options.answer.split():
        choice = {"delta": {"content": word + " "}} if chat else {"text": word + " "}
        events.append(json.dumps({"choices": [{"index": 0, **choice}]}))
    return 200, "text/event-stream", "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]).encode()


def serve_one(options: argparse.Namespace, connection: socket.socket) -> None:
    with connection:
        try:
            request = body_of(connection)
            if request is None:
                return
            status, kind, payload = answer(options, request[1], request[2])
            head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode() + payload)
        except OSError:
            return


def main() -> int:
    options = arguments()
    print(f"tiny engine {os.getpid()} boots", flush=True)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.exit_at_boot is not None:
        print("RuntimeError: crashed at boot on purpose", flush=True)
        return int(options.exit_at_boot)
    if options.worker != "none":
        start_worker(options)
    if options.ledger:
        import fcntl

        os.makedirs(options.ledger, exist_ok=True)
        holding = open(f"{options.ledger}/{os.getpid()}.json", "w")  # noqa: SIM115 - held as long as the process lives
        fcntl.flock(holding, fcntl.LOCK_EX)
        holding.write(json.dumps({"pid": os.getpid(), "gpus": {"0": options.hold_mib}}))
        holding.flush()
    while options.hang_at_boot:
        time.sleep(0.05)
        if options.chatty:
            print("still loading", flush=True)
    time.sleep(options.boot_s)
    server = socket.create_server(("127.0.0.1", options.port), backlog=128)
    print("Application startup complete.", flush=True)
    if options.exit_after_s is not None:
        threading.Timer(options.exit_after_s, lambda: os._exit(9)).start()
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve_one, args=(options, connection), daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
