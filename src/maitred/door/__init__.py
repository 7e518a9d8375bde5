"""What every live shell needs to let a request in: reading it, and the house that owns the core."""
