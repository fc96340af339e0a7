"""The boundary of the package.

Arguments that come in are checked here; files that go out are whole or not there; processes are limited by the kernel.
"""
