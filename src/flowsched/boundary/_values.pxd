# Values, for compiled modules.

cpdef frozen(type cls, dict attributes)
cpdef bint plain_id(value)
