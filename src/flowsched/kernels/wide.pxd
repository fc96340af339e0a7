# Sums of products in 128 bits: int64_t high, uint64_t low.

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static void fs_muladd(int64_t *hi, uint64_t *lo, int64_t a, int64_t b) {
        int64_t h; uint64_t l = (uint64_t)_mul128(a, b, &h);
        unsigned char carry = _addcarry_u64(0, *lo, l, lo);
        *hi = (int64_t)((uint64_t)*hi + (uint64_t)h + carry);
    }
    #else
    static inline void fs_muladd(int64_t *hi, uint64_t *lo, int64_t a, int64_t b) {
        unsigned __int128 t = ((unsigned __int128)(uint64_t)*hi << 64) | *lo;
        t += (unsigned __int128)((__int128)a * b);
        *hi = (int64_t)(uint64_t)(t >> 64); *lo = (uint64_t)t;
    }
    #endif
    """
    void fs_muladd(int64_t *hi, uint64_t *lo, int64_t a, int64_t b) nogil
