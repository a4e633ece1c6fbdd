"""Every mention of a guide, in whatever file, leads to one that exists, and to a heading in it."""

import re
from pathlib import Path

import pytest

from tests.project import ROOT
from tests.project.guides import anchors, headings
from tests.project.test_hygiene import TEXTS

GUIDE = r"\bdocs/(?P<guide>[\w./-]+\.md)"
# In comments and messages: `(docs/install.md, Rights)`, `see docs/install.md, Rights; ...`.
NAMED = re.compile(GUIDE + r", (?P<heading>[^();,\"]+)[);]")
LINKED = re.compile(GUIDE + r"#(?P<anchor>[\w-]+)")
LINE_BREAK = re.compile(r"\n\s*(?:# ?)?")


def pointers(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    """What the pattern finds in the repository, comments that go over several lines included."""
    texts = (text for path, text in TEXTS.items() if path != Path(__file__).relative_to(ROOT))
    return sorted({tuple(found.groups()) for text in texts for found in pattern.finditer(LINE_BREAK.sub(" ", text))})


def test_there_are_pointers_of_each_form() -> None:
    assert pointers(NAMED)
    assert pointers(LINKED)


@pytest.mark.parametrize("guide", [guide for (guide,) in pointers(re.compile(GUIDE))])
def test_a_guide_that_is_mentioned_exists(guide: str) -> None:
    assert (ROOT / "docs" / guide).is_file()


@pytest.mark.parametrize(("guide", "heading"), pointers(NAMED))
def test_a_heading_that_is_named_exists(guide: str, heading: str) -> None:
    assert heading in headings((ROOT / "docs" / guide).read_text())


@pytest.mark.parametrize(("guide", "anchor"), pointers(LINKED))
def test_an_anchor_that_is_linked_exists(guide: str, anchor: str) -> None:
    assert anchor in anchors((ROOT / "docs" / guide).read_text())
