"""Statuses of a solve, the same for all kernels; see `status.pxd`."""
