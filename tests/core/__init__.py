"""Tests of `maitred.core`."""
