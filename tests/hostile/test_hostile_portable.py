"""Files with a state that were cut off, damaged, or written with malice: an error by line, or a sound scheduler."""

from __future__ import annotations

import gzip
import json
import sys
from zlib import crc32

import pytest
from effort import FUZZ, effort
from lives import POLICIES, Life, live_alike
from portable_files import Breaker, check_books, files, fine_files, parsed, sealed, text

import flowsched as fs
from flowsched.fgm import FineGrained
from flowsched.journal.import_state import load

EVENTS = ("os.", "subprocess.", "pickle.", "exec", "compile", "open", "shutil.", "socket.", "ctypes.")
HEARD: list[str] = []
LISTENING = [False]


def listen(event: str, _: tuple) -> None:
    if LISTENING[0] and event.startswith(EVENTS):
        HEARD.append(event)


sys.addaudithook(listen)


def read(kind, data: bytes):
    """Read a file; return None if it is refused as it should be.  No code runs and no file is opened meanwhile."""
    HEARD.clear()
    LISTENING[0] = True
    try:
        return kind.import_state(data)
    except fs.JournalError as error:
        assert "line " in str(error), error
        return None
    finally:
        LISTENING[0] = False
        assert not HEARD


def live_on(kept) -> None:
    """Whatever was read is sound, can be written, and decides; a policy may ask for what the cluster does not have."""
    check_books(kept)
    data = text(kept)
    assert text(type(kept).import_state(data)) == data
    try:
        for now in (1e6, 2e6):
            kept.commit(kept.schedule(now))
            check_books(kept)
    except fs.FlowschedError:
        pass


def test_a_file_that_was_cut_off_is_refused_wherever_that_was() -> None:
    for data in [*files(3)[:: 1 if FUZZ else 10], *fine_files(3)[:1]]:
        kind = FineGrained if b'"adapter":{' in data else fs.Scheduler
        assert read(kind, data) is not None
        ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
        cuts = (
            range(0, len(data), 7)
            if FUZZ
            else [near for end in ends for near in (end - 1, end, end + 7) if near < len(data)]
        )
        for cut in [0, *cuts]:
            assert read(kind, data[:cut]) is None
        name = data.rindex(b'"crc"')  # a file may come without one
        for i in range(0, len(data), 17 if FUZZ else 211):
            if name <= i < name + 5:
                continue
            assert read(kind, data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]) is None


def test_a_file_without_one_of_its_lines_is_refused_or_sound() -> None:
    accepted = 0
    for data in files(4)[:: 1 if FUZZ else 4]:
        lines = parsed(data)
        for i in range(len(lines)):
            kept = read(fs.Scheduler, sealed(lines[:i] + lines[i + 1 :]))
            if kept is not None:
                accepted += 1
                check_books(kept)
            assert read(fs.Scheduler, sealed([*lines[: i + 1], *lines[i:]])) is None or lines[i]["is"] == "left out"
    assert accepted


BASES: dict[type, list[list[dict]]] = {}


def broken(kind: type, first: int, count: int):
    bases = BASES.setdefault(
        kind, [parsed(data) for s in (0, 10, 20, 30) for data in (files(s) if kind is fs.Scheduler else fine_files(s))]
    )
    for seed in range(first, first + count):
        yield Breaker(seed).broken(bases[seed % len(bases)])


@pytest.mark.parametrize("first", range(0, effort(400, 10_000), 200))
def test_a_file_of_good_checksums_and_nonsense_is_refused_or_sound(first: int) -> None:
    refused = 0
    for data in broken(fs.Scheduler, first, 200):
        kept = read(fs.Scheduler, data)
        if kept is None:
            refused += 1
        else:
            live_on(kept)
    assert 0 < refused < 200


@pytest.mark.parametrize("first", range(0, effort(100, 3000), 100))
def test_what_fgm_is_said_to_have_learnt_is_refused_or_sound(first: int) -> None:
    refused = 0
    for data in broken(FineGrained, first, 100):
        kept = read(FineGrained, data)
        if kept is None:
            refused += 1
        else:
            live_on(kept)
            kept.learn()
    assert 0 < refused < 100


def test_a_target_is_never_half_changed() -> None:
    life, target = Life(1), fs.Scheduler(POLICIES[4]())
    live_alike(life, target, (), 20, [lambda _, make=make: make() for make in POLICIES[4:5]])
    before, loaded = text(target), 0
    for data in broken(fs.Scheduler, 50_000, effort(20, 1500)):
        try:
            load(target.engine, data.splitlines(keepends=True))
        except fs.JournalError:
            assert text(target) == before
        else:
            loaded += 1
            load(target.engine, before.splitlines(keepends=True))
    assert loaded


@pytest.mark.parametrize(
    "account",
    [
        {"deployment": "x"}, {"deployment": {"Ledger": {"users": [], "debts": []}}}, {"deployment": {"os.system": "true"}},
        {"deployment": {"Deployment": 3}}, {"deployment": {"Deployment": {"quotas": [["a", 1]]}}}, {"__call__": 1}, {"committed": 1},
        {"mu": {"list": []}, "__class__": "x"}, {"deployment": {"array": ["O", [1], [1]]}}, [], "x", {"a b": 1},
        *(
            {"deployment": {"Deployment": {"quotas": [["a", 1], ["b", 2]], "position": 0, "debts": [], "mu": 0.5, "spares": "largest",
                                           "ticks": 1, "carried": [0.0, 0.0], "leaving": [], **change}}}
            for change in (
                {"quotas": [["a", 1], ["a", 2]]}, {"quotas": [["a", 0], ["b", 0]]}, {"quotas": [["a", 1 << 70], ["b", 1]]},
                {"quotas": [[["a"], float("nan")], ["b", 1]]}, {"quotas": [["a", 1]] * 3}, {"quotas": [[i, 1] for i in range(9000)]},
                {"position": 3}, {"position": -1}, {"debts": [[0, 0, 1]]}, {"debts": [[0, 1, 1], [1, 0, 1]]}, {"debts": [[0, 2, 1]]},
                {"debts": [[0, 1, 1 << 62]]}, {"debts": [[0, 1, True]]}, {"mu": 2}, {"mu": 0.25}, {"spares": "none"}, {"ticks": 2},
                {"carried": [0.0]}, {"carried": [-1.0, 0.0]}, {"carried": [float("inf"), 0.0]}, {"leaving": ["a", "b"]},
                {"leaving": ["c"]}, {"leaving": [{"dict": []}]},
            )
        ),
    ],
)  # fmt: skip
def test_accounts_that_cannot_be_are_refused(account) -> None:
    lines = parsed(text(fs.Scheduler(fs.Policy(fairness=fs.Fairness(fs.SequenceShare(0.5))))))
    assert lines[-1]["is"] == "account"
    lines[-1]["account"] = account
    assert read(fs.Scheduler, sealed(lines)) is None


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 200_000, b'{"is":' * 50_000, b"{" + b'"a":1,' * 3 + b"}", b"\xff\xfe", b"nul", b'"x"', b"[]", b"1" * 5000, b"{}",
        b'{"is":"machine","id":' + b"[" * 900 + b"]" * 900 + b',"capacity":{},"row":0}',
        b'{"is":"machine","id":{},"capacity":{},"row":0}', b'{"is":"machine","id":NaN,"capacity":{},"row":0}',
        b'{"is":"user","id":"u","quota":1' + b"0" * 5000 + b"}", b'{"is":["user"],"id":1}', b'{"is":"user","id":1,"quota":Infinity}',
        '{"is":"user","id":"é"}'.encode("utf-16"), b'{"is":"user","id":"u"}\r', b"",
    ],
    ids=range(18),
)  # fmt: skip
def test_lines_that_are_none(line: bytes) -> None:
    head = text(fs.Scheduler()).splitlines(keepends=True)[0]
    body = head + line + b"\n"
    kept = read(fs.Scheduler, body + json.dumps({"is": "end", "lines": 2, "crc": crc32(body)}).encode() + b"\n")
    if kept is not None:
        live_on(kept)
        assert line.startswith(b'{"is":"user","id":"u"}')


def test_compressed_files_that_are_damaged() -> None:
    packed = bytearray(gzip.compress(files(5)[0], mtime=0))
    assert read(fs.Scheduler, bytes(packed)) is not None
    for i in range(2, len(packed), 1 if FUZZ else 41):
        packed[i] ^= 0x10
        kept = read(fs.Scheduler, bytes(packed))
        assert kept is None or text(kept) == files(5)[0]  # some bits say nothing
        packed[i] ^= 0x10
        assert read(fs.Scheduler, bytes(packed[:i])) is None


def test_a_few_bytes_do_not_ask_for_much_memory() -> None:
    sched = fs.Scheduler()
    sched.apply(fs.MachineAdded("m", {"gpu": 1}), fs.JobSubmitted("j", [fs.Task("t")]))
    for change in ({"capacity": {"gpu": 10**12}}, {"row": 1 << 60}, {"capacity": [0, 0, 1 << 24]}):
        lines = parsed(text(sched))
        next(line for line in lines if line["is"] == "machine").update(change)
        kept = read(fs.Scheduler, sealed(lines))
        assert kept is None or "row" in change or kept.cluster.inventory.devices.size < 1 << 28
