"""The basis of the compiled network simplex."""

from typing import Final

from typing_extensions import disjoint_base

__test__: Final[dict[str, str]]

@disjoint_base
class Basis: ...
