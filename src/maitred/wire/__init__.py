"""Bytes to values and back, without I/O: the APIs' bodies, their edits, their errors, their streams."""
