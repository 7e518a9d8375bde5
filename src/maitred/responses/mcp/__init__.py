"""Tools that the gateway runs in a turn: those of MCP servers. `tools.py` is a turn's part in it."""
