"""Entry point of `python -m e2e.cluster`."""

from e2e.cluster.cli import main

if __name__ == "__main__":
    main()
