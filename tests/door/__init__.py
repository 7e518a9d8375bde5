"""Tests of `maitred.door`."""
