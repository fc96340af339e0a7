"""Tokens of readers, users and operators: what each may see and change."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import calm, ended, started
from services import Served, command, ending

import flowsched as fs
from flowsched.cluster.events import to_dict
from flowsched.exceptions import InputError
from flowsched.serve import Client, ServiceError
from flowsched.serve.access import Access, read_tokens

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")

READER, ADA, BEN, ROOT = (f"the-token-of-{name}" for name in ("a-reader", "ada-1", "ben-1", "an-operator"))

FILE = f"""
tokens = [
  {{ token = "{READER}", role = "read" }},
  {{ token = "{ADA}", role = "user", user = "ada", priority = -1 }},
  {{ token = "{BEN}", role = "user", user = "ben" }},
  {{ token = "{ROOT}", role = "operator" }},
]
"""


def written(folder: Path, text: str = FILE, mode: int = 0o600) -> Path:
    path = folder / "tokens.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = written(tmp_path_factory.mktemp("tokens"))
    with ending(command("--port", 0, "--tokens", path, "--resources", "cpu")) as service:
        yield service


def client(served: Served, token: str) -> Client:
    one = Client(served.url, token)
    served.clients.append(one)
    return one


def job(name: str, count: int = 2, **about: Any) -> fs.JobSubmitted:
    return fs.JobSubmitted(name, [fs.Task(f"{name}.{i}", {"cpu": 1}) for i in range(count)], **about)


def refused(client: Client, *events: fs.Event, status: int = 403) -> str:
    with pytest.raises(ServiceError) as raised:
        client.tell(*events)
    assert raised.value.status == status, raised.value
    return str(raised.value)


def settled(root: Client, after: dict[str, Any]) -> dict[str, Any]:
    """State once the round after the last request has been made."""
    assert root.rounds(after["after"], wait=60)["rounds"]
    return root.state()


def test_two_hundred_attempts_on_another_users_jobs_change_nothing(served: Served) -> None:
    root, ada, ben = (client(served, token) for token in (ROOT, ADA, BEN))
    root.tell(fs.MachineAdded("m", {"cpu": 3}), fs.UserAdded("ben"))
    for k in range(4):
        ben.tell(job(f"b{k}", 3))
    before = settled(root, ada.tell(job("a0", 1)))
    draw = random.Random(7)

    def attempt() -> tuple[fs.Event, ...]:
        target, task = f"b{draw.randrange(4)}", f"b{draw.randrange(4)}.{draw.randrange(3)}"
        own: list[fs.Event] = [job(f"a-{draw.randrange(10**6)}", draw.randrange(3)) for _ in range(draw.randrange(3))]
        foreign: list[fs.Event] = [
            fs.JobRemoved(target), fs.TaskRemoved(task), fs.TaskSubmitted(target, fs.Task(f"new-{draw.random()}", {"cpu": 1})),
            fs.TaskSubmitted("a0", fs.Task(task)), job(f"x-{draw.random()}", 1, user="ben"), job(target), job(target, user="ada"),
            fs.JobSubmitted(f"y-{draw.random()}", [fs.Task("fresh"), fs.Task(task)]), job(target, 0, closed=True),
            fs.TaskCompleted(task), fs.TaskFailed(task, retry=False), fs.TaskStopped(task), fs.TaskStarted(task, "m"),
            fs.UsageSampled(task, {"cpu": 9}), fs.MachineFailed("m"), fs.MachineDrained("m"), fs.MachineRemoved("m"),
            fs.UserUpdated("ben", 0.0), fs.UserRemoved("ben"), fs.UserAdded("eve"), fs.MachineAdded("m9", {"cpu": 1}),
            job(f"z-{draw.random()}", 1, priority=-2), job(f"t-{draw.random()}", 1, time=1e12),
        ]  # fmt: skip
        at = draw.randint(0, len(own))
        return (*own[:at], draw.choice(foreign), *own[at:])

    for _ in range(200):
        refused(ada, *attempt())
    assert root.state() == before
    with pytest.raises(ServiceError) as raised:
        ada.what_if(*attempt())
    assert raised.value.status == 403


def test_a_user_works_on_its_own_jobs(served: Served) -> None:
    root, ada = client(served, ROOT), client(served, ADA)
    ada.tell(job("mine", 2), fs.TaskSubmitted("mine", fs.Task("mine.new", {"cpu": 1})), fs.TaskRemoved("mine.0"))
    ada.tell(job("named", 0, user="ada", priority=-1))
    jobs = {row["id"]: row for row in root.state()["jobs"]}
    assert jobs["mine"]["user"] == jobs["named"]["user"] == "ada" and jobs["mine"]["tasks"] == 2
    ada.tell(fs.TaskRemoved("mine.1"), fs.JobRemoved("mine"), fs.JobRemoved("named"))
    assert not {row["id"] for row in root.state()["jobs"]} & {"mine", "named"}


def test_a_user_sees_its_own_jobs_alone(served: Served) -> None:
    root, ada, ben = (client(served, token) for token in (ROOT, ADA, BEN))
    root.tell(job("secret-of-nobody", 1))
    ben.tell(job("secret-of-ben", 5))
    settled(root, ada.tell(job("seen", 5)))
    for path in ("/v1/state", "/v1/overview", "/v1/overview?tasks=10000"):
        whole, part = (served.request("GET", path, token=token)[1] for token in (ROOT, ADA))
        assert "secret" in json.dumps(whole) and "seen" in json.dumps(part)
        assert "secret" not in json.dumps(part) and '"ben"' not in json.dumps(part)
        assert part["machines"] == whole["machines"]
    mine = served.request("GET", "/v1/overview", token=ADA)[1]
    assert mine["all_waiting"] == len(mine["waiting"]) == sum(mine["codes"].values())
    (row,) = mine["users"]
    assert row["user"] == "ada" and (row["running"], row["waiting"]) == (mine["tasks_running"], mine["all_waiting"])
    assert ada.explain("seen.4")["task"] == "seen.4"
    for other, unknown in (("secret-of-ben.0", "secret-of-joe.0"), ("secret-of-nobody.0", "secret-of-another.0")):
        answers = [served.request("GET", f"/v1/explain/{task}", token=ADA) for task in (other, unknown)]
        assert [status for status, _ in answers] == [404, 404]
        assert str(answers[0]).replace(other, "?") == str(answers[1]).replace(unknown, "?")
        messages = [refused(ada, fs.TaskRemoved(task)) for task in (other, unknown)]
        assert messages[0].replace(other, "?") == messages[1].replace(unknown, "?")
    supposed = json.dumps(ada.what_if(job("more", 40)))
    assert "more.39" in supposed and "secret" not in supposed
    for path in ("/v1/rounds", "/v1/rounds/stream", "/metrics"):
        assert served.request("GET", path, token=ADA)[0] == 403
    root.tell(fs.JobRemoved("secret-of-nobody"), fs.JobRemoved("secret-of-ben"), fs.JobRemoved("seen"))


def test_keys_of_two_users_are_different(served: Served) -> None:
    root, ada, ben = (client(served, token) for token in (ROOT, ADA, BEN))
    first, second = job("key-b", 1), job("key-a", 1)
    ben.tell(first, key="k")
    assert "repeated" not in ada.tell(second, key="k") and ada.tell(second, key="k")["repeated"]
    assert ben.tell(first, key="k")["repeated"]
    status, answer = served.request("POST", "/v1/events", [to_dict(first)], token=ADA, Idempotency_Key="k")
    assert status == 422 and "Idempotency-Key" in answer["error"]
    assert "repeated" not in root.tell(fs.JobRemoved("key-a"), fs.JobRemoved("key-b"), key="k")


def test_a_reader_reads_everything_and_changes_nothing(served: Served) -> None:
    root, reader = client(served, ROOT), client(served, READER)
    state = settled(root, root.tell(job("read", 1, user="ada")))
    assert reader.state() == state and reader.explain("read.0")["task"] == "read.0"
    assert served.request("GET", f"/v1/rounds?after={state['round'] - 1}", token=READER)[0] == 200
    refused(reader, job("no"))
    refused(reader)
    with pytest.raises(ServiceError) as raised:
        reader.what_if(job("no"))
    assert raised.value.status == 403
    root.tell(fs.JobRemoved("read"))


@pytest.mark.parametrize(
    "record",
    [{"id": {}}, {"id": "u", "priority": "first"}, {"id": "u", "user": {}}, {"id": "u", "tasks": [{"id": {}}]}],
)
def test_malformed_events_of_a_user_are_refused(served: Served, record: dict[str, Any]) -> None:
    status, answer = served.request("POST", "/v1/events", [{"kind": "JobSubmitted", **record}], token=ADA)
    assert status in (400, 403, 422) and "events[0]" in answer["error"]


# -- the file -------------------------------------------------------------------------------------------------------


def test_a_file_of_tokens_is_toml_or_json(tmp_path: Path) -> None:
    expected = [
        (READER, Access("read")), (ADA, Access("user", "ada", -1)), (BEN, Access("user", "ben")), (ROOT, Access("operator")),
    ]  # fmt: skip
    assert read_tokens(written(tmp_path)) == expected
    records = [{"token": READER, "role": "read"}, {"token": ADA, "role": "user", "user": "ada", "priority": -1}]
    assert read_tokens(written(tmp_path, json.dumps({"tokens": records}))) == expected[:2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'tokens'"), ("tokens = []", "'tokens'"), ("tokens = 3", "'tokens'"), ("tokens = [", "neither"), ("{", "neither"),
        (FILE + "more = 1", "nothing else"), ("tokens = [3]", r"tokens\[0\]: a table"),
        (FILE.replace("role", "rule"), "did you mean 'role'"), (FILE.replace('"read"', '"reed"'), "one of read, user, operator"),
        (FILE.replace(READER, "short"), r"tokens\[0\]: token: at least 16"), (FILE.replace(BEN, ADA), r"same token as tokens\[1\]"),
        (FILE.replace('user = "ben"', 'user = ""'), r"tokens\[2\]: user"), (FILE.replace(', user = "ben"', ""), "user: a name"),
        (FILE.replace("priority = -1", "priority = 0.5"), "priority: a whole"),
        (FILE.replace('role = "read"', 'role = "read", user = "x"'), "belong to the role"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_tokens_is_refused_without_its_tokens(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        read_tokens(written(tmp_path, text))
    assert not any(token in str(raised.value) for token in (READER, ADA, BEN, ROOT))


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path, mode=mode)
    status, out, err = ended(started("serve", "--port", 0, "--tokens", path))
    calm(err)
    assert status == 2 and out == "" and "chmod 600" in err
