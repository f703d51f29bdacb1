"""Waiting for a server and judging it, against tiny engines and small faulty servers; GPU memory from the ledger and nvidia-smi."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from audition.wayback.gpu import above_baseline, baseline_without, read_usage, wait_settled
from audition.wayback.health import (
    Limits,
    NoAnswer,
    completion,
    record_greedy,
    served_models,
    stream,
    verify,
    wait_ready,
)
from audition.wayback.plan import EndpointPlan, GpuPlan, Verification
from audition.wayback.procs import ProcessServer
from audition.wayback.server import WaybackError
from wayback.tiny_world import ENGINE, World, free_port, start_and_wait, wait_until

LIMITS = Limits(boot_s=10.0, silence_s=10.0, poll_s=0.03, call_s=5.0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close(made.arm("production"))


def ready(world: World, *options: str, limits: Limits = LIMITS, **more: object):  # type: ignore[no-untyped-def]
    arm = world.arm("production", *options)
    server = ProcessServer(arm)
    server.start()
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "model-production")
    return wait_ready(server, endpoint, limits, strangers=server.strangers, **more)  # type: ignore[arg-type]


def test_ready_means_that_a_completion_works(world: World) -> None:
    got = ready(world, "--boot-s", "0.2")
    assert got.kind == "ready"
    assert got.seconds >= 0.2
    assert got.boot_id == ProcessServer(world.arm("production")).view().boot_id


@pytest.mark.parametrize(
    ("options", "limits", "kind"),
    [
        (["--exit-at-boot", "5"], LIMITS, "exited"),
        (["--hang-at-boot"], replace(LIMITS, silence_s=0.5), "silent"),
        (["--hang-at-boot", "--chatty"], replace(LIMITS, silence_s=0.5, boot_s=1.5), "overrun"),
        (["--model", "an-old-one"], LIMITS, "wrong-model"),
        (["--broken"], LIMITS, "broken"),
    ],
)
def test_failed_boots_are_told_apart(world: World, options: list[str], limits: Limits, kind: str) -> None:
    got = ready(world, *options, limits=limits)
    assert got.kind == kind, got
    assert got.detail
    assert got.exit_code == (5 if kind == "exited" else None)


def test_giving_up(world: World) -> None:
    assert ready(world, "--hang-at-boot", give_up=lambda: True).kind == "interrupted"


def test_a_restart_while_waiting_is_an_exit(world: World) -> None:
    arm = world.arm("production", "--hang-at-boot", "--chatty")
    server = ProcessServer(arm)
    server.start()
    looks = []

    def restart() -> None:
        looks.append(1)
        if len(looks) == 3:
            ProcessServer(arm).stop(0)
            ProcessServer(arm).start()

    got = wait_ready(server, EndpointPlan(f"http://127.0.0.1:{world.port}", "m"), LIMITS, on_poll=restart)
    assert got.kind == "exited"


def test_an_old_server_that_answers_beside_ours_is_noticed(world: World) -> None:
    """Another process listens on the same port (SO_REUSEPORT, as vLLM does) and answers under the same name."""
    server = start_and_wait(world.arm("production", "--answer", "x"))
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "model-production")
    got = wait_ready(server, endpoint, LIMITS, strangers=lambda: ["pid 4711 (old server)"])
    assert got.kind == "wrong-model"
    assert "4711" in got.detail


def test_verification_and_greedy_answers(world: World) -> None:
    start_and_wait(world.arm("production"))
    endpoint = EndpointPlan(f"http://127.0.0.1:{world.port}", "model-production")
    body, answers, missing = record_greedy(endpoint)
    assert (answers, missing) == (["answer of production"], "")
    plan = Verification(endpoint, 5, 5, 0, "require", body, answers)
    assert [(check.name, check.ok) for check in verify(endpoint, plan)] == [
        ("model", True), ("completion", True), ("stream", True), ("greedy", True),
    ]  # fmt: skip
    other = replace(plan, greedy_answers=["another"])
    assert verify(endpoint, other)[-1].ok is False
    assert verify(endpoint, replace(other, greedy="report"))[-1].ok is None
    assert verify(endpoint, replace(plan, greedy_answers=[], greedy_missing="it was down"))[-1].ok is None
    assert stream(endpoint, {"messages": [{"role": "user", "content": "x"}]}).split() == ["answer", "of", "production"]
    dead = EndpointPlan(f"http://127.0.0.1:{free_port()}", "m")
    assert record_greedy(dead)[1] == []
    assert "no greedy answer" in record_greedy(dead)[2]
    assert verify(dead, plan)[0].ok is False


def read_request(connection: socket.socket) -> None:
    """The whole request: closing a socket with unread bytes resets the connection, and the reply may be lost."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0:
        missing -= len(connection.recv(65536)) or missing


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", "no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "no JSON object"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "no JSON"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\ndead", "HTTP 503 dead"),
        (b"not http at all\r\n\r\n", "BadStatusLine"),
        (b"", "closed"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"choices": []}', "no choices"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{"choices": [{"text": ""}]} ', "empty completion"),
        (b"drip", "within 1 s"),
        (b"drip the head", "within 1 s"),
    ],
)
def test_answers_that_are_none(reply: bytes, said: str) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            if reply.startswith(b"drip"):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000" + (b"\r\n\r\n" if reply == b"drip" else b""))
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b" " if reply == b"drip" else b"0")
                    except OSError:
                        return
            else:
                connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    endpoint = EndpointPlan(f"http://127.0.0.1:{listener.getsockname()[1]}", "m")
    try:
        with pytest.raises(NoAnswer, match=said):
            completion(endpoint, {"prompt": "x"}, 1.0)
    finally:
        stop.set()
        thread.join(5)
        listener.close()


def test_the_key_is_sent() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    seen = []

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            seen.append(connection.recv(65536))
            body = b'{"data": [{"id": "m"}]}'
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert served_models(EndpointPlan(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", "the-key")) == ["m"]
    thread.join(5)
    listener.close()
    assert b"Authorization: Bearer the-key" in seen[0]


# ---- GPU memory


def test_the_ledger_counts_live_holders_only(world: World) -> None:
    ledger = world.folder / "ledger"
    plan = GpuPlan("ledger", [0, 1], str(ledger), {"0": 100, "1": 0}, tolerance_mib=256, settle_s=0.3)
    assert read_usage(plan).used_mib == {"0": 0, "1": 0}
    holder = world.stranger(sys.executable, ENGINE, "--port", str(free_port()), "--ledger", str(ledger), "--hold-mib", "5000")
    wait_until(lambda: read_usage(plan).used_mib["0"] == 5000)
    (ledger / "1.json").write_text('{"pid": 1, "gpus": {"0": 77777}}')  # nobody holds its lock: dead
    usage = read_usage(plan)
    assert usage.used_mib == {"0": 5000, "1": 0}
    assert baseline_without(usage, {holder.pid}) == {"0": 0, "1": 0}
    assert f"pid {holder.pid}" in above_baseline(plan, usage)[0]
    assert above_baseline(replace(plan, baseline_mib={"0": 4800}), usage) == []
    assert above_baseline(replace(plan, baseline_mib={"0": 4700}), usage) != []
    settled = wait_settled(plan)
    assert not settled.ok
    threading.Timer(0.3, os.kill, (holder.pid, 9)).start()
    assert wait_settled(replace(plan, settle_s=10)).ok


SMI = """#!/bin/sh
case "$1" in
--query-gpu*) printf '0, GPU-aaa, 20400\\n1, GPU-bbb, 310\\n' ;;
--query-compute-apps*) printf 'GPU-aaa, 4711, 20000, /usr/bin/python3\\nGPU-aaa, 12, [N/A], x\\n' ;;
*) echo "unknown option $1" >&2; exit 6 ;;
esac
"""


def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    plan = GpuPlan("nvidia-smi", [0, 1], baseline_mib={"0": 300, "1": 300}, settle_s=0)
    usage = read_usage(plan)
    assert usage.used_mib == {"0": 20400, "1": 310}
    assert baseline_without(usage, {4711}) == {"0": 400, "1": 310}
    assert "pid 4711 /usr/bin/python3 20000 MiB" in wait_settled(plan).detail
    with pytest.raises(WaybackError, match="does not list GPU 7"):
        read_usage(replace(plan, gpus=[0, 7]))
    tool.write_text("#!/bin/sh\necho 'Driver/library version mismatch' >&2; exit 18\n")
    with pytest.raises(WaybackError, match="version mismatch"):
        read_usage(plan)
    assert not wait_settled(plan).ok
    assert read_usage(GpuPlan("none")).used_mib == {}
