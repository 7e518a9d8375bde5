"""`python -m maitred`: the command line without an installed script, which is how child processes start."""

from __future__ import annotations

from maitred.cli.main import main

if __name__ == "__main__":
    main()
