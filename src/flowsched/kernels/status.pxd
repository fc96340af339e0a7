# How a solve, or a step of one, ends.

cpdef enum:
    OK
    # -- no answer
    INFEASIBLE         # an excess cannot be routed
    UNBOUNDED          # a cycle of unlimited capacity has a negative cost
    RANGE              # exact arithmetic could overflow
    LATE               # the time is needed for an answer, or is up
    INTERRUPTED        # a signal handler raised an exception
    SPENT              # the caller's limit of work is reached
    # -- of shortest paths and walks
    STUCK              # the walk's budget is spent: `search` goes on
    BEYOND             # no end is nearer than the limit of the search
    # -- of repair: the algorithm that goes on
    BEHIND             # repair has taken too long, or would: a kernel for whole networks takes over
    WHOLE              # a kernel for whole networks is likely to be faster than repair, which has not begun
    AGAIN              # a solve from scratch is likely to be faster
    PROBE              # a repair from scratch may be faster: `probe` tries it
    DECLINED           # no kernel for whole networks takes the network, or has the time: repair goes on without a limit
    # -- of cost scaling
    UNPROVEN           # no potentials in whole costs were found that prove the flow optimal
    # -- of the network simplex
    CHEAP              # a deficit has too low a price: it would pay to make it larger
    EASY               # shortest paths hold nearly all flow, so that repair is likely to be faster
    JOINED             # many nodes only pass flow on: `reduction` is to take them out first
