"""The decisions: pure, synchronous, told the time; every shell asks the same core."""
