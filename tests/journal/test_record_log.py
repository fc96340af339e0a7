"""The log's file: cut at any byte, flipped at any bit, short of room, in two hands."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flowsched as fs
from flowsched.journal.record_log import MAGIC, Log, Reader, framed

BODIES = [b"H{}", b"", b"E" + bytes(range(256)) * 3, b"R[1]", b"C[1,null,[]]"]


def read(data: bytes) -> tuple[list[bytes], Reader]:
    reader = Reader(io.BytesIO(data), "log")
    return [body for _, body in reader], reader


def opened(path: Path) -> tuple[Log, list[bytes]]:
    log = Log(path)
    with open(path, "rb") as file:
        reader = log.reader(file)
        bodies = [body for _, body in reader]
    log.go_on(reader)
    return log, bodies


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    log, found = opened(tmp_path / "log")
    assert found == []
    log.append(*BODIES[:2])
    log.sync()
    log.append(*BODIES[2:])
    assert log.size == (tmp_path / "log").stat().st_size
    log.close()
    assert opened(tmp_path / "log")[1] == BODIES
    assert (tmp_path / "log").read_bytes() == MAGIC + framed(BODIES)[0]


def test_records_in_pieces_are_the_same_records() -> None:
    pieces = [[memoryview(body)[:1], memoryview(body)[1:], b""] for body in BODIES]
    data, chain = framed(BODIES)
    assert framed(pieces) == (data, chain)
    assert framed(pieces, front=MAGIC) == (MAGIC + data, chain)


def test_every_prefix_is_a_torn_tail() -> None:
    data = MAGIC + framed(BODIES)[0]
    ends = [len(MAGIC + framed(BODIES[:k])[0]) for k in range(len(BODIES) + 1)]
    for cut in range(len(data) + 1):
        whole = sum(end <= cut for end in ends[1:])
        found, reader = read(data[:cut])
        assert found == BODIES[:whole]
        end = ends[whole] if cut >= len(MAGIC) else 0
        assert (reader.end, reader.torn) == (end, cut - end)


def test_every_flipped_bit_is_an_error_that_names_the_record() -> None:
    data = MAGIC + framed(BODIES)[0]
    starts = [0, *(len(MAGIC + framed(BODIES[:k])[0]) for k in range(len(BODIES)))]
    for i in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[i] ^= 1 << bit
            with pytest.raises(fs.JournalError) as caught:
                read(bytes(damaged))
            assert caught.value.offset == max(start for start in starts if start <= i)
            assert isinstance(caught.value, fs.JournalMismatchError if i < len(MAGIC) else fs.CorruptJournalError)


@given(cut=st.integers(0, 2000), zeros=st.integers(1, 3000))
def test_sectors_never_written_are_a_torn_tail(cut: int, zeros: int) -> None:
    data = MAGIC + framed([*BODIES, b"x" * 700])[0]
    cut = min(cut, len(data)) // 512 * 512
    found, reader = read(data[:cut] + bytes(zeros))
    whole, before = read(data[:cut])
    assert found == whole
    assert (reader.end, reader.torn) == (before.end, before.torn + zeros)


def test_zeros_at_the_end_do_not_excuse_damage_before() -> None:
    data = bytearray(MAGIC + framed([b"a" * 600, b"b" * 600, b"c"])[0])
    data[100] ^= 1
    with pytest.raises(fs.CorruptJournalError, match=f"at byte {len(MAGIC)}: "):
        read(bytes(data) + bytes(2000))


def test_records_of_another_file_do_not_fit_in(tmp_path: Path) -> None:
    one, two = framed([b"a", b"b", b"c"])[0], framed([b"x", b"b", b"c"])[0]
    with pytest.raises(fs.CorruptJournalError):
        read(MAGIC + one[:13] + two[13:])


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    for data in (b"p min 3 2\n", b"flowsched log 3\n", b"\1"):
        with pytest.raises(fs.JournalMismatchError, match=r"log at byte 0: not a journal or snapshot"):
            read(data)


def test_a_torn_tail_is_cut_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(MAGIC + framed(BODIES)[0][:-3])
    log, found = opened(path)
    assert found == BODIES[:-1]
    log.append(b"new")
    log.close()
    assert opened(path)[1] == [*BODIES[:-1], b"new"]


@pytest.mark.parametrize("written", [0, 1, 13, 199])
def test_a_full_disk_leaves_whole_records_and_a_log_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    path = tmp_path / "log"
    log, _ = opened(path)
    log.append(b"good")
    write, calls = os.write, []

    def full(fd: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(fd, data[:written])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(fs.JournalError, match="could not be written \\(No space left on device\\)"):
        log.append(b"x" * 200)
    monkeypatch.undo()
    with pytest.raises(fs.JournalError, match="start again from the journal"):
        log.append(b"y")
    log.close()
    assert path.read_bytes() == MAGIC + framed([b"good"])[0]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    log, _ = opened(tmp_path / "log")
    with pytest.raises(fs.JournalError, match="in use by another scheduler"):
        Log(tmp_path / "log")
    log.restart(b"new")
    with pytest.raises(fs.JournalError, match="in use by another scheduler"):
        Log(tmp_path / "log")
    log.close()
    assert opened(tmp_path / "log")[1] == [b"new"]
    with pytest.raises(fs.JournalError, match="is closed"):
        log.append(b"more")


def test_starting_anew_happens_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    log, _ = opened(path)
    log.append(*BODIES)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    for name in ("replace", "write"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(fs.JournalError, match="could not be started anew: Input/output error"):
                log.restart(b"S")
    log.append(b"goes on")
    assert read(path.read_bytes())[0] == [*BODIES, b"goes on"]
    log.restart(b"H", b"S")
    log.append(b"E")
    assert read(path.read_bytes())[0] == [b"H", b"S", b"E"]
    assert log.size == path.stat().st_size
