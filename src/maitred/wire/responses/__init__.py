"""The Responses API on the wire, sans-I/O: requests read, chat made of items, items and events made of answers."""
