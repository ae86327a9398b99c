"""`python -m aqueue` is `aqueue`."""

from aqueue.cli import main

if __name__ == "__main__":
    main()
