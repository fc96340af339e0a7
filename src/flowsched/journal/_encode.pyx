"""What a journal writes, compiled: records as JSON text (``_words.pxi``), and objects of a snapshot as tables (``_walk.pxi``).

One module, as each would have its own copy of what Cython needs: a hundredth of the wheel.
"""

__all__ = ["Walk", "delta_words", "round_numbers", "words"]

include "_words.pxi"
include "_walk.pxi"
