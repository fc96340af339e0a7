# Values, for compiled modules.

cpdef frozen(type cls, dict attributes)
