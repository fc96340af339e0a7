"""``python -m flowsched`` is ``flowsched``."""

from flowsched.cli import main

if __name__ == "__main__":
    main()
