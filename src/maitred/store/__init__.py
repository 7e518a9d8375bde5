"""The database of what must survive a restart: keys and accounts."""
