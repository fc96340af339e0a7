"""What a journal writes, compiled: records as JSON text (``_words.pxi``), and objects of a snapshot as tables (``_walk.pxi``) and back
(``_fill.pxi``).

One module, as each would have its own copy of what Cython needs: a hundredth of the wheel.
"""

__all__ = ["Walk", "delta_words", "fill", "immutables", "round_numbers", "values", "words"]

include "_words.pxi"
include "_walk.pxi"
include "_fill.pxi"
