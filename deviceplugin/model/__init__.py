"""Frozen values that every other part works on, and the codec of device ids. No I/O, no clock."""
