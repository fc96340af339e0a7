"""The service over HTTP: what it answers, what it refuses, and how it ends."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from commands import calm, ended, started
from services import TOKEN, Served, command, ending, small

import flowsched as fs
from flowsched.serve import ServiceError

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

HEAD = f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n".encode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with ending(small()) as service:
        yield service


_numbers = iter(range(10**6))


def job(count: int, **about: Any) -> tuple[str, fs.JobSubmitted]:
    name = f"j{next(_numbers)}"
    return name, fs.JobSubmitted(name, [fs.Task(f"{name}.{i}", {"cpu": 1}) for i in range(count)], **about)


# -- what it answers ------------------------------------------------------------------------------------------------


def test_events_go_in_and_rounds_come_out() -> None:
    with ending(small()) as served:
        client = served.client()
        begin = client.state()["round"]
        name, submitted = job(3, user="ada")
        told = client.tell(fs.MachineAdded("m", {"cpu": 2}), submitted)
        assert told["events"] == 2 and told["ended"] == [] and begin <= told["after"]
        (round,) = client.rounds(begin, wait=30)["rounds"]
        assert [(p["task"], p["machine"], p["run"]) for p in round["placed"]] == [
            (f"{name}.0", "m", 1),
            (f"{name}.1", "m", 2),
        ]
        (why,) = round["reasons"]
        assert round["waiting"] == 1 and why["code"] == "OUTBID" and why["tasks"] == [f"{name}.2"]
        explained = client.explain(f"{name}.2")
        assert explained["code"] == "NO_FIT" and explained["machine"] is None and explained["unblocked_by"]
        assert client.explain(f"{name}.0")["machine"] == "m"
        supposed = client.what_if(fs.MachineAdded("m2", {"cpu": 1}))
        assert [(p["task"], p["machine"]) for p in supposed["placed"]] == [(f"{name}.2", "m2")]
        answer = client.tell(fs.TaskCompleted(f"{name}.0", run=1), fs.TaskCompleted(f"{name}.0", run=1))
        assert answer["ended"] == [{"task": f"{name}.0", "run": 1, "machine": "m", "why": "TaskCompleted"}]
        (next_,) = client.rounds(round["round"], wait=30)["rounds"]
        assert next_["round"] == round["round"] + 1 and next_["ended"] == answer["ended"]
        assert [p["run"] for p in next_["placed"]] == [3]
        state = client.state()
        assert state["round"] == next_["round"] and {t["id"]: t.get("run") for t in state["tasks"]} == {
            f"{name}.1": 2,
            f"{name}.2": 3,
        }
        overview = served.request("GET", "/v1/overview?machines=5")[1]
        assert overview["machines"] == [
            {"id": "m", "rack": None, "state": "up", "tasks": 2, "capacity": [2.0, 0.0], "used": [2.0, 0.0]}
        ]
        assert overview["users"] == [{"user": "ada", "running": 2, "waiting": 0, "share": [1.0, 0.0]}]
        client.tell(fs.MachineFailed("m"))
        (last,) = client.rounds(next_["round"], wait=30)["rounds"]
        assert {run["why"] for run in last["ended"]} == {"MachineFailed"} and last["waiting"] == 2
        overview = served.request("GET", "/v1/overview?tasks=1&first=1")[1]
        assert overview["machines"][0]["state"] == "failed" and overview["all_waiting"] == 2
        (waits,) = overview["waiting"]
        assert waits["id"] == f"{name}.2" and waits["demand"] == {"cpu": 1.0} and waits["code"] == "NO_FIT"


def test_a_stream_has_every_round_once_and_ends_with_the_service() -> None:
    with ending(small()) as served:
        client, streaming = served.client(), served.client()
        begin, got = client.state()["round"], list[Any]()
        reader = threading.Thread(target=lambda: got.extend(streaming.stream(begin)))
        reader.start()
        client.tell(fs.MachineAdded("m", {"cpu": 1000}))
        for _ in range(20):
            _, submitted = job(2)
            client.tell(submitted)
            time.sleep(0.005)
        while sum(t.get("run", 0) > 0 for t in client.state()["tasks"]) < 40:
            time.sleep(0.01)
        rounds = client.rounds(begin)["rounds"]
        assert served.stop()[0] == 0
        reader.join(30)
        assert got == rounds and sorted(p["run"] for round in got for p in round["placed"]) == list(range(1, 41))


@pytest.mark.long
def test_rounds_that_are_not_kept_any_more_are_gone(served: Served) -> None:
    client = served.client()
    begin = client.state()["round"]
    for number in (0, begin + 10**6):
        status, answer = served.request("GET", f"/v1/rounds?after={number}")
        assert status == 410 and answer["round"] >= begin and "/v1/state" in answer["error"]
    for _ in range(60):
        client.tell(job(10)[1])
        begin = client.rounds(begin, wait=30)["newest"]
    with pytest.raises(ServiceError) as raised:
        next(client.stream(begin - 59))
    assert raised.value.status == 410
    assert client.rounds(begin - 5)["newest"] >= begin


def test_ids_that_are_no_texts_are_asked_for_as_json(served: Served) -> None:
    client = served.client()
    client.tell(
        fs.JobSubmitted(
            ("j", 1), [fs.Task(77, {"cpu": 1}), fs.Task(("a/b", 2), {"cpu": 1}), fs.Task("a/b c?", {"cpu": 1})]
        )
    )
    assert client.explain("77")["task"] == 77
    assert client.explain('["a/b",2]')["task"] == ["a/b", 2]
    assert client.explain("a/b c?")["task"] == "a/b c?"
    assert served.request("GET", "/v1/explain/nothing")[0] == 404
    client.tell(fs.JobRemoved(("j", 1)))


@pytest.mark.parametrize(
    ("accepted", "packed"), [("gzip, br", True), ("br;q=1, GZIP;q=0.5", True), ("gzip;q=0", False), ("br", False)]
)
def test_large_answers_are_compressed_where_the_client_takes_that(served: Served, accepted: str, packed: bool) -> None:
    with served.client() as client:
        if not client.state()["machines"]:
            client.tell(*(fs.MachineAdded(f"gzip-{i}", {"cpu": 1}) for i in range(40)))
        state = client.state()
    for path in ("/v1/state", "/v1/overview"):
        request = urllib.request.Request(
            served.url.rstrip("/") + path, headers={"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": accepted}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            text = response.read()
            assert (response.headers["content-encoding"] == "gzip") is packed
            assert response.headers["vary"] == "accept-encoding"
        answer = json.loads(gzip.decompress(text) if packed else text)
        assert [machine["id"] for machine in answer["machines"]] == [machine["id"] for machine in state["machines"]]
        assert not packed or len(text) < len(json.dumps(answer)) / 3


def test_metrics_are_those_of_prometheus(served: Served) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    status, text = served.request("GET", "/metrics")
    names = {family.name for family in parser.text_string_to_metric_families(text.decode())}
    assert status == 200 and {"flowsched_rounds", "flowsched_tasks_waiting", "flowsched_round_seconds"} <= names


def test_the_page_and_its_health_need_no_token(served: Served) -> None:
    status, page = served.request("GET", "/", token=None)
    assert status == 200 and b"<script>" in page
    assert served.request("GET", "/healthz", token=None) == (200, {"status": "ok", "version": fs.__version__})


# -- keys -----------------------------------------------------------------------------------------------------------


def test_a_request_sent_twice_happens_once(served: Served) -> None:
    _, submitted = job(1)
    client = served.client()
    assert "repeated" not in client.tell(submitted, key="once")
    assert client.tell(submitted, key="once") == {"events": 1, "repeated": True}
    with pytest.raises(ServiceError) as raised:
        client.tell(job(1)[1], key="once")
    assert raised.value.status == 422 and "Idempotency-Key" in str(raised.value)
    status, answer = served.request("POST", "/v1/events", [], Idempotency_Key="with space")
    assert status == 400 and "Idempotency-Key" in answer["error"]


def test_a_refused_request_may_be_sent_again_under_its_key(served: Served) -> None:
    client, machine = served.client(), fs.MachineAdded(f"m{next(_numbers)}", {"cpu": 0})
    with pytest.raises(ServiceError) as raised:
        client.tell(fs.MachineDrained(machine.id), key="later")
    assert raised.value.status == 404
    client.tell(machine)
    assert client.tell(fs.MachineDrained(machine.id), key="later")["events"] == 1


def test_the_same_request_from_many_at_once_happens_once(served: Served) -> None:
    _, submitted = job(1)
    answers = list[Any]()
    tell = lambda: answers.append(served.client().tell(submitted, key="many"))  # noqa: E731
    threads = [threading.Thread(target=tell) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8 and sum("repeated" not in answer for answer in answers) == 1


# -- what it refuses ------------------------------------------------------------------------------------------------


def test_nothing_of_a_refused_request_happens(served: Served) -> None:
    client = served.client()
    before = client.state()["events"]
    _, submitted = job(1)
    with pytest.raises(ServiceError) as raised:
        client.tell(submitted, fs.UserAdded("x"), fs.TaskCompleted("nobody's"))
    assert raised.value.status == 404 and raised.value.answer["index"] == 2
    for events, status in (((submitted, submitted), 409), ((fs.TaskSubmitted("no", fs.Task(1)), submitted), 404)):
        with pytest.raises(ServiceError) as raised:
            client.tell(*events)
        assert raised.value.status == status
    assert client.state()["events"] == before


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ä" * 20])
@pytest.mark.parametrize(
    "path", ["/v1/state", "/v1/rounds", "/v1/rounds/stream", "/v1/overview", "/metrics", "/v1/explain/t"]
)
def test_a_wrong_token_is_refused(served: Served, token: str | None, path: str) -> None:
    status, answer = served.request("GET", path, token=token)
    assert status == 401 and "token" in answer["error"] and TOKEN not in answer["error"]


def test_the_token_is_asked_for_before_the_body_is_read(served: Served) -> None:
    for path in ("/v1/events", "/v1/what-if"):
        assert served.request("POST", path, [], token="wrong")[0] == 401
    head = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
    assert served.raw(head).startswith(b"HTTP/1.1 401")
    assert served.request("GET", "/v1/state", token=None, Authorization=f"Basic {TOKEN}")[0] == 401


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1/events", 405), ("DELETE", "/v1/state", 405), ("GET", "/v2", 404), ("PUT", "/", 405), ("BREW", "/healthz", 405),
    ("GET", "/v1/rounds?after=-1", 400), ("GET", "/v1/rounds?after=1e3", 400), ("GET", "/v1/rounds?wait=9999", 400),
    ("GET", "/v1/overview?tasks=99999999999999999999", 400), ("GET", "/v1/state?rack=1", 400), ("GET", "/v1/rounds?afer=1", 400),
])  # fmt: skip
def test_wrong_methods_and_paths_are_refused(served: Served, method: str, path: str, status: int) -> None:
    got, answer = served.request(method, path)
    assert got == status and answer["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"\xff", 400), (b"null", 400), (b"[" * 5000, 400), (b"[" + b"9" * 5000 + b"]", 400),
     (b"[{}]", 400), (b"[" + b" " * 19_990 + b"]", 200), (b"[" + b" " * 20_000 + b"]", 413), (b"[" + b"{}," * 60 + b"{}]", 413)],
)  # fmt: skip
def test_malformed_and_huge_bodies_are_refused(served: Served, body: bytes, status: int) -> None:
    for path in ("/v1/events", "/v1/what-if"):
        got, answer = served.request("POST", path, body)
        assert got == status and ("error" in answer) == (status != 200)


def test_a_body_in_pieces_is_refused_when_it_grows_too_large(served: Served) -> None:
    piece = b"3e8\r\n" + b" " * 1000 + b"\r\n"
    got = served.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[piece] * 25)
    assert got.startswith(b"HTTP/1.1 413") or got == b""  # the answer may be lost with the unread rest


@pytest.mark.long
@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((), b"408"),
        ((b"POST /v1/ev",), b"408"),
        ((HEAD + b"Content-Length: 100\r\n\r\n[",), b"408"),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n[\r\n",), b"408"),
        ((HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",), b"4"),
        ((HEAD + b"X: " + b"y" * 100_000, b"y"), b"4"),
        ((b"nonsense\r\n\r\n",), b"400"),
    ],
)
def test_slow_and_malformed_requests_end(served: Served, pieces: tuple[bytes, ...], status: bytes) -> None:
    got = served.raw(*pieces)
    assert got.startswith(b"HTTP/1.1 " + status) or (got == b"" and len(pieces[0]) > 1000)


def test_a_second_request_that_is_slow_ends_too(served: Served) -> None:
    ask = f"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as plug:
        plug.sendall(ask)
        assert b" 200 " in plug.recv(65536)
        plug.sendall(ask[:20])
        got = b""
        while part := plug.recv(65536):
            got += part
    assert b" 408 " in got


@pytest.mark.parametrize("served_first", [False, True])
def test_slow_clients_do_not_take_the_connections_of_others(served_first: bool) -> None:
    """More slow connections than the service has, whose heads never end, before the first request or after one."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with ending(small(seconds=60)) as served, ExitStack() as plugs:
        client = served.client()
        stream = client.stream(client.state()["round"])
        for _ in range(120):
            plug = plugs.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
            if served_first:
                plug.sendall(whole)
                assert b" 200 " in plug.recv(65536)
            plug.sendall(whole[:20])
        for _ in range(20):
            assert served.request("GET", "/healthz", token=None)[0] == 200
        name, submitted = job(1)
        served.client().tell(submitted)
        assert next(stream)["reasons"][0]["tasks"] == [f"{name}.0"]  # a request in progress stays
        stream.close()


def test_one_client_has_at_most_half_of_the_connections() -> None:
    with ending(small(seconds=60)) as served, ExitStack() as plugs:
        slow = [
            plugs.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30)) for _ in range(25)
        ]
        for plug in slow:
            plug.sendall(HEAD + b"Content-Length: 100\r\n\r\n[")
        while (got := served.request("GET", "/v1/state"))[0] == 200:
            time.sleep(0.01)
        assert got[0] == 429 and "25 requests" in got[1]["error"]
        assert served.request("GET", "/healthz", token=None)[0] == 200
        slow[0].close()
        while served.request("GET", "/v1/state")[0] == 429:
            time.sleep(0.01)
        plugs.close()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_answers_that_are_not_read_end_the_connection() -> None:
    with ending(small()) as served:
        client = served.client()
        for i in range(60):
            client.tell(fs.JobSubmitted(i, [fs.Task(f"{i} {k} {'x' * 900}", {"cpu": 1}) for k in range(15)]))
        size = len(json.dumps(client.state()))
        with socket.socket() as plug:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plug.settimeout(30)
            plug.connect(("127.0.0.1", served.port))
            ask = f"GET /v1/state HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            plug.sendall(ask * 30)
            client.close()
            for _ in range(300):
                time.sleep(0.1)
                if not established(served.port):
                    break
            else:
                raise AssertionError("the connection is still there")
        assert size > 500_000 and client.state()


def established(port: int) -> int:
    """Number of connections on the service's side."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(line[1].endswith(f":{port:04X}") and line[3] == "01" for line in lines)


# -- the command ----------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with ending(command("--journal", path, "--port", 0)) as served:
        client = served.client()
        client.tell(fs.MachineAdded("m", {"cpu": 1}))
        _, submitted = job(3)
        client.rounds(client.tell(submitted, key="k")["after"], wait=30)
        before = client.state()
        served.kill()
    with ending(command("--journal", path, "--port", 0)) as served:
        client = served.client()
        after = client.state()
        assert after["round"] > before["round"] and {**after, "round": 0} == {**before, "round": 0}
        assert client.tell(submitted, key="k") == {"events": 1, "repeated": True}
        status, answer = served.request("GET", f"/v1/rounds?after={before['round']}")
        assert status == 410 and answer["round"] == after["round"]


IGNORED = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as for jobs in the background of a shell


@pytest.mark.long
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.skipif(IGNORED, reason="it is ignored"))]
)
def test_a_signal_ends_it_with_status_0(number: int, tmp_path: Path) -> None:
    served = command("--port", 0, "--journal", tmp_path / "journal")
    client = served.client()
    stream = client.stream(client.tell(job(1)[1])["after"])
    assert next(stream)["events"] == 1
    served.process.send_signal(number)
    assert list(stream) == []
    assert served.ended() == (0, "", "")


@pytest.mark.long
def test_a_token_is_made_where_none_is_given() -> None:
    process = started("serve", "--port", 0, stderr=subprocess.PIPE)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    url, _, token = line.split()[-1].partition("#token=")
    assert len(token) >= 32 and url.startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process)
    assert status == 0 and "all is lost" in err


@pytest.mark.parametrize(
    ("options", "token", "words"),
    [
        (("--host", "0.0.0.0"), None, "needs a token"),
        pytest.param(("--host", "example.org"), None, "needs a token", marks=pytest.mark.long),
        pytest.param(("--token-file", "nothing"), None, "No such file", marks=pytest.mark.long),
        ((), "short", "at least 16"),
        pytest.param((), "with a space in it, and long", "at least 16", marks=pytest.mark.long),
        pytest.param(("--host", "192.0.2.1"), "x" * 20, "cannot listen", marks=pytest.mark.long),
        pytest.param(("--policy", "nothing"), "x" * 20, "nothing", marks=pytest.mark.long),
        pytest.param(("--resources", "cpu,cpu"), "x" * 20, "twice", marks=pytest.mark.long),
        (("--journal", "."), "x" * 20, "'.'"),
        pytest.param(("--journal", "text"), "x" * 20, "not a journal", marks=pytest.mark.long),
    ],
)
def test_a_wrong_command_line_is_an_error_of_one_line(
    options: tuple[str, ...], token: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("this is not a journal, and longer than its head\n")
    monkeypatch.setenv("PYTHONPATH", str(Path(fs.__file__).parents[1]))
    monkeypatch.delenv("FLOWSCHED_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("FLOWSCHED_TOKEN", token)
    status, out, err = ended(started("serve", "--port", 0, *options))
    calm(err)
    assert status == 2 and out == "" and words in err and (token is None or token not in err), err


@pytest.mark.long
def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with ending(command("--port", 0, "--journal", path)):
        status, _, err = ended(started("serve", "--port", 0, "--journal", path))
        assert status == 2 and "in use" in err


@pytest.mark.long
def test_a_journal_that_cannot_be_written_ends_the_service(tmp_path: Path) -> None:
    """Unwritten requests are not acknowledged; a restart continues from the written ones."""
    path = tmp_path / "journal"
    served = command("--port", 0, "--journal", path)
    client = served.client(patience=0.0)
    client.tell(fs.MachineAdded("m", {"cpu": 1}))
    time.sleep(0.2)
    path.rename(tmp_path / "moved")
    with pytest.raises((ServiceError, OSError)):
        client.tell(job(1)[1])
    status, _, err = served.ended()
    assert status == 1 and "moved" in err
    (tmp_path / "moved").rename(path)
    with ending(command("--port", 0, "--journal", path)) as again:
        state = again.client().state()
        assert [m["id"] for m in state["machines"]] == ["m"] and json.dumps(state["tasks"]) == "[]"
