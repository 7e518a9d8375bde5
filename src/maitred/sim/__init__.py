"""The fleet in a box: a model of engines, workloads, and the production core driven in virtual time."""
