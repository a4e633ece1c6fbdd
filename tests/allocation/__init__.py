"""Tests of the pure answers: Allocate and preferred allocation."""
