# What `Columns.columns_at` tells: the addresses of the columns of a class in the order in which it declares them, then the lengths of their axes, in the order in
# which these occur there.  They hold until the columns grow.  Lengths and indices are checked before any column is used.

cdef enum:      # Inventory
    I_VERSION
    I_CAPACITY
    I_FREE
    I_DEVICES
    I_FIRST_DEVICE
    I_NUM_DEVICES
    I_SLOTS
    I_RUNNING
    I_USABLE
    I_OVER
    I_RUNNING_AT
    I_DEMAND
    I_PRIORITY
    I_LEVEL
    I_ROWS
    I_RESOURCES
    I_CELLS         # devices of all machines
    I_LEVELS
    I_CLASSES
    I_DEVICE        # the resource of devices, -1 without one

cdef enum:      # RunningTasks
    T_ROW
    T_CLASS_ID
    T_TURN
    T_SINCE
    T_END
    T_TASKS

cdef enum:      # Suitability
    S_OF
    S_SUITS
    S_HOLDS
    S_ROWS
    S_CLASSES
    S_SHAPES

cdef enum:      # Reservations
    H_HELD
    H_ROWS

cdef enum:      # ClassArcs
    M_ARC
    M_GATE
    M_CAPACITY
    M_COST
    M_WHY
    M_ROOMY
    M_OPEN
    M_CURSOR
    M_REFUSED_AT
    M_CLASSES
    M_ROWS

cdef enum:      # RackArcs
    R_OF
    R_NODE
    R_ARC
    R_CAPACITY
    R_COST
    R_PAIR
    R_ROWS
    R_CLASSES
    R_RACKS
    R_ARCS

cdef enum:      # RunningArcs
    A_ARC
    A_RUNNING
    A_SINCE
    A_BUCKET
    A_DUE
    A_END
    A_ENDING
    A_ARCS
    A_ENDS

cdef enum:      # MachineArcs
    N_NODE
    N_ARC
    N_CAPACITY
    N_ROWS


cdef const int64_t *columns(of) except NULL:
    cdef bytes at = of.columns_at
    return <const int64_t *> <const char *> at
