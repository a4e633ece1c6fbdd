"""Counts in words, for messages."""


def counted(count: int, noun: str) -> str:
    """`1 device`, `2 devices`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
