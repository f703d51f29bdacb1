"""The HTTP client against a server that sends scripted bytes: every way to end is told apart, and nothing hangs."""

import asyncio
import ssl
import subprocess
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from audition.judge.records import RequestRecord
from audition.load.chat import Sent, record_of
from audition.load.client import Connection, Target, fetch
from audition.load.wire import GATHER_FROM, Exchange, Gather
from load.scripted import CLOSE, END, HANG, HEAD, RESET, Endpoint, Step, part, scripted
from load.sse import DONE, ROLE, chunk

T = TypeVar("T")
GOOD: list[Step] = [HEAD, part(chunk(ROLE, 0)), part(chunk({"content": "a"}, 3, "stop")), part(chunk(None, 3)), part(DONE), END]


def run(work: Coroutine[Any, Any, T]) -> T:
    return uvloop.run(asyncio.wait_for(work, 30))


async def one(*script: Step, deadline_s: float = 5.0, silence_s: float = 5.0) -> tuple[Exchange, RequestRecord]:
    async with scripted(script) as server:
        target = Target.of(server.endpoint)
        async with Connection(target) as connection:
            exchange = await connection.send(target.request("POST", "/x", b"{}"), deadline_s=deadline_s, silence_s=silence_s)
    return exchange, record_of(Sent(0, 0, "p", exchange.sent or 0.0, exchange), exchange.sent or 0.0)


def test_a_whole_answer() -> None:
    exchange, record = run(one(*GOOD))
    assert record.outcome == "ok"
    assert record.detail == ""
    assert (record.http_status, record.completion_tokens, record.prompt_tokens) == (200, 3, 7)
    assert exchange.sent is not None
    assert exchange.headers is not None
    assert exchange.sent <= exchange.headers <= exchange.end
    assert record.finish_reason == "stop"
    assert not record.tokens_estimated


def test_bytes_cut_everywhere_give_the_same_answer() -> None:
    whole = b"".join(step for step in GOOD if isinstance(step, bytes))
    _, record = run(one(*[whole[n : n + 1] for n in range(len(whole))]))
    assert (record.outcome, record.completion_tokens) == ("ok", 3)


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        ([HEAD, part(chunk({"content": "a"})), CLOSE], "dropped", "lost"),
        ([HEAD, part(chunk({"content": "a"})), RESET], "dropped", "lost"),
        ([HEAD, part(chunk({"content": "a"})), END], "dropped", "without a finish reason"),
        ([HEAD, END], "dropped", "empty body"),
        ([HEAD, part(chunk({"content": "a"})), part('data: {"error": {"message": "boom"}}\n\n'), END], "error-in-stream", "boom"),
        ([HEAD, part('data: {"error": {"message": "boom"}}\n\n'), CLOSE], "error-in-stream", "boom"),
        ([HEAD, part(chunk({"content": "a"}, 1, "abort")), part(DONE), END], "error-in-stream", "abort"),
        ([b"HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nnope!"], "http-error", "nope!"),
        ([b"HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n"], "http-error", ""),
        ([b"SSH-2.0-OpenSSH\r\n"], "protocol", "not HTTP"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>hi\n"], "protocol", "no data line"),
        ([HEAD, part("data: {oh\n\n"), END], "protocol", "no JSON"),
        ([CLOSE], "dropped", "lost"),
    ],
)  # fmt: skip
def test_ways_to_fail(script: list[Step], outcome: str, detail: str) -> None:
    _, record = run(one(*script))
    assert record.outcome == outcome
    assert detail in record.detail
    assert record.end >= 0


@pytest.mark.parametrize("before", [[], [HEAD], [HEAD, part(chunk({"content": "a"}, 1))]])
def test_silence_ends_a_request(before: list[Step]) -> None:
    exchange, record = run(one(*before, HANG, silence_s=0.3))
    assert record.outcome == "stalled"
    assert exchange.end - (exchange.sent or 0.0) >= 0.3


def test_bytes_now_and_then_are_no_silence_but_end_at_the_deadline() -> None:
    drip: list[Step] = [HEAD]
    for _ in range(40):
        drip += [0.1, part(": ping\n\n")]
    _, record = run(one(*drip, silence_s=0.5, deadline_s=1.0))
    assert record.outcome == "deadline"


def test_done_counts_even_when_the_connection_hangs_afterwards() -> None:
    exchange, record = run(one(*GOOD[:-1], HANG, silence_s=0.3))
    assert record.outcome == "ok"
    assert "no byte" in record.detail
    assert record.end < exchange.end - (exchange.sent or 0.0)


def test_an_answer_without_length_ends_with_the_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    _, record = run(one(head, (chunk({"content": "a"}, 1, "stop") + DONE).encode(), CLOSE))
    assert (record.outcome, record.completion_tokens) == ("ok", 1)


def test_an_informational_response_is_passed_over() -> None:
    _, record = run(one(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", *GOOD))
    assert (record.outcome, record.http_status) == ("ok", 200)


def test_no_usage_is_flagged_as_estimated() -> None:
    _, record = run(one(HEAD, part(chunk({"content": "a"})), part(chunk({"content": "b"}, None, "stop")), part(DONE), END))
    assert (record.outcome, record.completion_tokens, record.tokens_estimated) == ("ok", 2, True)


def test_refused() -> None:
    async def work() -> Exchange:
        async with scripted([]) as server:
            endpoint = server.endpoint
        return await fetch(endpoint, "GET", "/", deadline_s=5)

    exchange = run(work())
    assert exchange.outcome == "refused"
    assert exchange.sent is None


async def twice(*scripts: list[Step], pause: float = 0.0) -> tuple[list[Exchange], int, list[bytes]]:
    async with scripted(*scripts, api_key="sesame") as server:
        target = Target.of(server.endpoint)
        async with Connection(target) as connection:
            exchanges = []
            for number in range(2):
                request = target.request("POST", "/x", b"{}", f"id-{number}")
                exchanges.append(await connection.send(request, deadline_s=5, silence_s=5))
                await asyncio.sleep(pause)
        return exchanges, server.connections, server.requests


def test_connections_are_kept_alive_and_requests_carry_key_and_id() -> None:
    exchanges, connections, requests = run(twice(GOOD))
    assert [exchange.outcome for exchange in exchanges] == ["ok", "ok"]
    assert connections == 1
    assert [b"Authorization: Bearer sesame\r\n" in request for request in requests] == [True, True]
    assert [f"X-Request-Id: id-{n}\r\n".encode() in request for n, request in enumerate(requests)] == [True, True]


def test_a_connection_closed_while_idle_is_opened_again() -> None:
    exchanges, connections, _ = run(twice([*GOOD, CLOSE], pause=0.1))
    assert [exchange.outcome for exchange in exchanges] == ["ok", "ok"]
    assert connections == 2


def test_a_kept_connection_that_closes_at_the_next_request_is_tried_once_more() -> None:
    exchanges, connections, requests = run(twice(GOOD, [CLOSE], GOOD))
    assert [exchange.outcome for exchange in exchanges] == ["ok", "ok"]
    assert (connections, len(requests)) == (2, 3)
    exchanges, connections, requests = run(twice(GOOD, [CLOSE], [CLOSE]))
    assert [exchange.outcome for exchange in exchanges] == ["ok", "dropped"]
    assert (connections, len(requests)) == (2, 3)


def test_cancelling_and_closing_end_a_request_cleanly() -> None:
    async def work() -> tuple[str, int]:
        async with scripted([HEAD, HANG]) as server:
            target = Target.of(server.endpoint)
            request = target.request("POST", "/x", b"{}")
            async with Connection(target) as connection:
                closing = asyncio.create_task(connection.send(request, deadline_s=9, silence_s=9))
                await asyncio.sleep(0.1)
                connection.close()
                exchange = await closing
                cancelled = asyncio.create_task(connection.send(request, deadline_s=9, silence_s=9))
                await asyncio.sleep(0.1)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
            return exchange.outcome, len(asyncio.all_tasks())

    outcome, tasks = run(work())
    assert outcome == "cancelled"
    assert tasks <= 4  # this one, its limit, and the scripted server's own


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("There is no openssl command here to make a certificate with.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def work() -> Exchange:
        async with scripted(GOOD, tls=context) as server:
            return await fetch(server.endpoint, "GET", "/", deadline_s=5)

    refused = run(work())
    assert (refused.outcome, refused.sent) == ("protocol", None)
    assert "TLS" in refused.detail
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert run(work()).outcome == "ok"


@pytest.mark.parametrize("url", ["ftp://x", "127.0.0.1:80", "http://"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        Target.of(Endpoint(url))


class Counting(Gather):
    rests = 0

    def _rest(self) -> None:
        self.rests += 1
        super()._rest()


@pytest.mark.parametrize(("others", "gathered"), [(1, False), (GATHER_FROM, True)])
def test_reads_are_gathered_only_while_many_streams_are_open(others: int, gathered: bool) -> None:
    async def work() -> tuple[int, str]:
        gather = Counting()
        gather.open = others
        async with scripted([*GOOD[:2], 0.05, *GOOD[2:]]) as server:
            target = Target.of(server.endpoint)
            async with Connection(target, gather) as connection:
                exchange = await connection.send(target.request("POST", "/x", b"{}"), deadline_s=5, silence_s=5)
                await asyncio.sleep(0.01)
        return gather.rests, exchange.outcome

    rests, outcome = run(work())
    assert outcome == "ok"
    assert (rests > 0) is gathered
