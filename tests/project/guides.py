"""What leads into the guides."""

import re


def headings(text: str) -> set[str]:
    """The headings of a Markdown text, as they stand."""
    outside_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^#+ (.+)$", outside_code, re.MULTILINE))


def anchors(text: str) -> set[str]:
    """The anchors that a Markdown renderer makes of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings(text)}
