"""Arrays that grow over dense indices."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.typing import NDArray

from flowsched.builder._running import MachineArcsColumns
from flowsched.cluster.columns import Columns, column, view

Ints = NDArray[np.int64]


class Arcs(Columns):
    """Three arrays and a view, as a builder has them."""

    arc: Ints = column("rows", fill=-1)
    cost: NDArray[np.float64] = column("classes", "rows", dtype=np.float64)
    why: NDArray[np.uint32] = column("classes", dtype=np.uint32, fill=7)
    arc_view: memoryview = view("arc")


class Priced(Arcs):
    """One more array over the same rows."""

    price: Ints = column("rows", fill=5)


def test_arrays_start_with_their_fill_and_type() -> None:
    arcs = Arcs(classes=3)
    assert arcs.arc.tolist() == [-1] * 8
    assert arcs.cost.shape == (3, 8)
    assert arcs.cost.dtype == np.float64
    assert arcs.why.tolist() == [7] * 3
    assert arcs.why.dtype == np.uint32


def test_growing_keeps_the_values_and_fills_the_rest() -> None:
    arcs = Arcs()
    arcs.arc[:] = range(8)
    arcs.cost[:] = 2.5
    arcs.grow(rows=9, classes=30)
    assert arcs.arc.tolist() == [*range(8), *[-1] * 8], "an axis at least doubles"
    assert arcs.cost.shape == (30, 16)
    assert (arcs.cost[:8, :8] == 2.5).all()
    assert arcs.cost.sum() == 2.5 * 64
    assert arcs.why.tolist() == [7] * 30


def test_what_is_long_enough_stays_the_same_array() -> None:
    arcs = Arcs()
    before = arcs.arc, arcs.cost, arcs.why
    arcs.grow(rows=8, classes=1)
    assert all(a is b for a, b in zip(before, (arcs.arc, arcs.cost, arcs.why), strict=True))
    arcs.grow(classes=9)
    assert arcs.arc is before[0], "it has no such axis"


def test_an_axis_of_length_zero_grows_as_requested() -> None:
    arcs = Arcs(rows=0)
    arcs.grow(rows=3)
    assert arcs.arc.shape == (3,)


def test_an_axis_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        Arcs().grow(racks=3)


def test_views_follow_their_arrays() -> None:
    arcs = Arcs()
    arcs.arc_view[3] = 11
    assert arcs.arc[3] == 11
    arcs.grow(rows=100)
    arcs.arc_view[99] = 12
    assert arcs.arc[99] == 12
    assert arcs.arc_view.obj is arcs.arc


def test_a_copy_has_views_of_its_own() -> None:
    arcs = Arcs()
    twin = copy.deepcopy(arcs)
    twin.arc_view[0] = 4
    assert (arcs.arc[0], twin.arc[0]) == (-1, 4)
    assert "arc_view" not in arcs.__getstate__()


def test_a_class_has_the_arrays_of_its_base_too() -> None:
    arcs = Priced()
    arcs.grow(rows=20)
    assert len(arcs.arc) == len(arcs.price) == 20
    assert arcs.price[-1] == 5
    assert "price" not in Arcs._columns


def test_declarations_are_not_found_in_the_class() -> None:
    """Else every reading of the attribute would look there first."""
    assert not any(hasattr(Arcs, name) for name in ("arc", "cost", "why", "arc_view"))


def test_an_array_of_another_kind_is_refused() -> None:
    for other in (np.zeros(8), np.zeros(7, np.int64), np.zeros(16, np.int64)[::2], np.broadcast_to(np.int64(1), 8)):
        state = Arcs().__getstate__()
        with pytest.raises(ValueError, match="another kind"):
            Arcs.__new__(Arcs).__setstate__({**state, "arc": other})


def test_compiled_code_finds_columns_by_their_names() -> None:
    """The order of declarations does not matter: here it is another one than in `MachineArcsColumns`."""

    class Machines(Columns, typed=MachineArcsColumns):
        _capacity: Ints = column("rows", fill=2)
        _arc: Ints = column("rows", fill=1)
        node: Ints = column("rows", fill=0)

    machines = Machines()
    machines.grow(rows=20)
    for name, fill in (("node", 0), ("arc", 1), ("capacity", 2)):
        assert np.asarray(getattr(machines.typed, name)).tolist() == [fill] * 20
    machines.node[3] = 7
    assert machines.typed.node[3] == 7, "it is the same memory"


def test_other_columns_than_compiled_code_knows_are_refused() -> None:
    for names in (["node", "arc"], ["node", "arc", "capacity", "cost"], ["node", "arc", "volume"]):
        with pytest.raises(TypeError, match="not the same columns"):
            type("Machines", (Columns,), {name: column("rows") for name in names}, typed=MachineArcsColumns)
    for wrong in (column("rows", dtype=np.float64), column("rows", "racks")):
        columns = {"node": column("rows"), "arc": wrong, "capacity": column("rows")}
        with pytest.raises(ValueError, match="Buffer"):
            type("Machines", (Columns,), columns, typed=MachineArcsColumns)()
