"""HTTP/1.1 on asyncio protocols: server and client connections, the pool, and the network below them."""
