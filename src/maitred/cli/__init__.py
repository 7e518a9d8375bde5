"""The command line: thin, and lazy, so that `maitred --help` answers at once."""
