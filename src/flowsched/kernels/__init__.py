"""The compiled algorithms on flow networks, one to a file; `flowsched._cs` puts them together."""
