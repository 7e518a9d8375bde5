"""The Responses API on the wire, sans-I/O: requests are read, items become chat, and answers items again."""
