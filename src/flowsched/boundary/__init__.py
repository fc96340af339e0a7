"""The boundary of the package: arguments that come in are checked here; files that go out are whole or not there."""
