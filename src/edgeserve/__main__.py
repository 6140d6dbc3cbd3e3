"""``python -m edgeserve``: the same as the ``edgeserve`` command."""

from edgeserve.cli import main

if __name__ == "__main__":
    main()
