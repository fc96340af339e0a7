# A radix heap of labels, for searches that take keys in ascending order (Ahuja, Mehlhorn, Orlin and Tarjan 1990): O(1) to insert, remove or lower a key, and each
# element moves down at most 63 buckets.

from libc.stdint cimport int32_t, int64_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static int fs_low_bit(uint64_t x) { unsigned long i; _BitScanForward64(&i, x); return (int)i; }
    static int fs_high_bit(uint64_t x) { unsigned long i; _BitScanReverse64(&i, x); return (int)i; }
    #else
    static inline int fs_low_bit(uint64_t x) { return __builtin_ctzll(x); }
    static inline int fs_high_bit(uint64_t x) { return 63 - __builtin_clzll(x); }
    #endif
    #define FS_FAR ((int64_t)1 << 62)
    """
    int fs_low_bit(uint64_t x) nogil
    int fs_high_bit(uint64_t x) nogil
    const int64_t FAR "FS_FAR"      # above every key

cdef struct Label:
    int64_t dist       # the key
    int32_t parent     # half-arc by which the search reached the element, -1 at a root
    int32_t stamp      # the label is valid if this equals the search's stamp
    int32_t next       # neighbours in the bucket
    int32_t prev       # -1 - bucket at the front of the bucket

cdef struct Heap:      # bucket i > 0 holds keys that differ from `last` first at bit i - 1
    uint64_t mask      # of non-empty buckets 0..63; bucket 64 cannot occur, keys are < 2**62
    int64_t last       # the smallest key taken so far; no key is below it
    int32_t front[64]


cdef inline void clear_heap(Heap *heap) noexcept nogil:
    heap.mask = 0
    heap.last = 0


cdef inline void insert(Heap *heap, Label *label, int32_t e, int64_t dist) noexcept nogil:
    """Insert element e with key `dist`, which is not below `last`."""
    cdef int bucket = fs_high_bit(<uint64_t>(dist ^ heap.last)) + 1 if dist != heap.last else 0
    label[e].dist = dist
    label[e].prev = -1 - bucket
    if heap.mask >> bucket & 1:
        label[e].next = heap.front[bucket]
        label[label[e].next].prev = e
    else:
        label[e].next = -1
        heap.mask |= <uint64_t>1 << bucket
    heap.front[bucket] = e


cdef inline void remove(Heap *heap, Label *label, int32_t e) noexcept nogil:
    cdef int32_t next = label[e].next, prev = label[e].prev
    if next >= 0:
        label[next].prev = prev
    if prev >= 0:
        label[prev].next = next
    elif next >= 0:
        heap.front[-1 - prev] = next
    else:
        heap.mask &= ~(<uint64_t>1 << (-1 - prev))


cdef inline int64_t least(Heap *heap, Label *label) noexcept nogil:
    """Smallest key, whose elements are then in bucket 0, ``front[0]`` first; FAR if the heap is empty."""
    cdef int32_t e, next
    cdef int bucket
    if not heap.mask:
        return FAR
    if heap.mask & 1:
        return heap.last
    bucket = fs_low_bit(heap.mask)
    e = heap.front[bucket]
    heap.last = FAR
    while e >= 0:
        heap.last = min(heap.last, label[e].dist)
        e = label[e].next
    e = heap.front[bucket]
    heap.mask &= ~(<uint64_t>1 << bucket)
    while e >= 0:
        next = label[e].next
        insert(heap, label, e, label[e].dist)
        e = next
    return heap.last
