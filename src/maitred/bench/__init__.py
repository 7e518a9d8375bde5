"""A load generator that tells the truth: what clients meet, how sure that is, and what it did itself."""
