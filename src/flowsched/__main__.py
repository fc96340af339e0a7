"""``python -m flowsched`` is ``flowsched``."""

from _flowsched_cli import main

if __name__ == "__main__":
    main()
