"""Tests of `maitred.wire`."""
