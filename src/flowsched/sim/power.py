"""Power and energy of machines, by a linear model of their capacity and of the amounts that their tasks use.

The model is linear between idle and peak, after Fan, Weber and Barroso, "Power Provisioning for a Warehouse-sized
Computer", ISCA 2007, section 4, here separately for each resource.  It has no default figures.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from flowsched.boundary.validate import mapping, named, nearest, number, quoted
from flowsched.cluster.model import GPU_MODEL, MICRO, Machine, Resources
from flowsched.exceptions import InputError

_MOST = 1e6
"""Largest wattage of a machine or a unit."""

_MILLI = 1000


def _figure(watts: float) -> str:
    """Return the shortest text that is read as this number."""
    return f"{watts!r}".removesuffix(".0")


@dataclass(frozen=True)
class PowerModel:
    """Watts that a machine draws, linear in the amounts that its tasks use.

    While it is up, a machine draws::

        machine + sum over its resources of idle * capacity + (peak - idle) * used

    A task uses all that it requests.  A machine that is down draws nothing.

    Parameters
    ----------
    machine : float
        Watts of a machine without its resources.
    units : mapping of str to (float, float)
        Watts of an idle unit of a resource, and of one in use.  A key ``gpu.T4`` is of machines whose label ``gpu_model`` is
        T4, before ``gpu``.  A resource that is not named draws nothing.

    Raises
    ------
    InputError
        A number is negative, or a peak below the idle watts.

    Examples
    --------
    >>> PowerModel.parse("machine=50, cpu=1:4, gpu=30:300, gpu.T4=10:70").units["gpu.T4"]
    (10.0, 70.0)
    """

    machine: float = 0.0
    units: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "machine", number("PowerModel: machine", self.machine, 0, _MOST))
        units = {}
        for name, pair in mapping("PowerModel: units", self.units).items():
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise InputError(f"PowerModel: units[{name!r}]: idle and peak watts expected, got {quoted(pair)}")
            idle = number(f"PowerModel: units[{name!r}]: idle", pair[0], 0, _MOST)
            units[name] = (idle, number(f"PowerModel: units[{name!r}]: peak", pair[1], idle, _MOST))
        object.__setattr__(self, "units", MappingProxyType(units))

    def __reduce__(self) -> tuple[object, ...]:
        return PowerModel, (self.machine, dict(self.units))

    def __str__(self) -> str:
        units = [f"{name}={_figure(idle)}:{_figure(peak)}" for name, (idle, peak) in self.units.items()]
        return ",".join([f"machine={_figure(self.machine)}", *units])

    @classmethod
    def parse(cls, text: str) -> PowerModel:
        """Read a model such as ``machine=50,cpu=1:4,gpu=30:300``, as `str` writes it.

        Raises
        ------
        InputError
            The text is no such list.
        """
        form = "machine=WATTS or NAME=IDLE:PEAK"
        machine, units = 0.0, dict[str, tuple[float, float]]()
        for name, figures in named("power", text, form).items():
            try:
                if name == "machine":
                    machine = float(figures)
                else:
                    idle, peak = map(float, figures.split(":"))
                    units[name] = (idle, peak)
            except ValueError:
                raise InputError(f"power: {form} expected, got {quoted(f'{name}={figures}')}") from None
        return cls(machine, units)

    def check(self, resources: Sequence[str]) -> None:
        """Raise InputError if a key names none of these resources."""
        for name in self.units:
            if name not in resources and name.partition(".")[0] not in resources:
                raise InputError(
                    f"power: unknown resource {quoted(name)}; the resources are {', '.join(resources)}{nearest(name, resources)}"
                )

    def of_unit(self, resource: str, machine: Machine) -> tuple[float, float]:
        """Return idle and peak watts of a unit of a resource on a machine."""
        model = self.units.get(f"{resource}.{machine.labels.get(GPU_MODEL)}")
        return model if model is not None else self.units.get(resource, (0.0, 0.0))


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of a run, by a `PowerModel`.

    Attributes
    ----------
    total : float
        Joules of all machines while they were up.
    idle : float
        Joules that they would have taken without tasks.
    lost : float
        Joules beyond `idle` for work lost to preemptions, migrations and failures.
    mean, peak : float
        Watts.
    """

    total: float
    idle: float
    lost: float
    mean: float
    peak: float

    @property
    def kwh(self) -> float:
        """`total` in kilowatt-hours."""
        return self.total / 3.6e6


class PowerMeter:
    """Present power of the machines, in milliwatts, as machines come and go and tasks start and end.

    `idle` is that of the machines, `used` beyond it that of the tasks; `lost` is the energy of tasks for lost work, in
    joules.
    """

    def __init__(self, model: PowerModel, resources: Resources) -> None:
        model.check(resources.names)
        self._model, self._names = model, resources.names
        self.idle = self.used = 0
        self.lost = 0.0
        self._machines: dict[Hashable, tuple[int, list[float]]] = {}  # idle milliwatts, and milliwatts of a unit in use
        self._tasks: dict[Hashable, int] = {}

    def there(self, machine: Machine, capacity: Sequence[int]) -> None:
        """Add a machine that is up, or update one that has changed."""
        units = [self._model.of_unit(name, machine) for name in self._names]
        idle = self._model.machine + sum(unit[0] * amount / MICRO for unit, amount in zip(units, capacity, strict=True))
        self.away(machine.id)
        self._machines[machine.id] = round(_MILLI * idle), [_MILLI * (peak - low) for low, peak in units]
        self.idle += self._machines[machine.id][0]

    def away(self, machine: Hashable) -> None:
        """Remove a machine."""
        if machine in self._machines:
            self.idle -= self._machines.pop(machine)[0]

    def begin(self, task: Hashable, machine: Hashable, demand: Sequence[int]) -> None:
        """Add a task that starts."""
        rates = self._machines[machine][1]
        drawn = self._tasks[task] = round(
            sum(rate * amount for rate, amount in zip(rates, demand, strict=True)) / MICRO
        )
        self.used += drawn

    def end(self, task: Hashable, lost_seconds: float = 0.0) -> None:
        """Remove a task; `lost_seconds` of its work are lost."""
        drawn = self._tasks.pop(task)
        self.used -= drawn
        self.lost += drawn / _MILLI * lost_seconds
