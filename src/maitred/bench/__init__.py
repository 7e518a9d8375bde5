"""A load generator that tells the truth: what clients meet, how sure that is, and whether it was itself in the way."""
