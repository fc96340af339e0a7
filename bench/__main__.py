"""``python -m bench NAME``: see `bench.command`."""

from bench.command import main

if __name__ == "__main__":
    main()
