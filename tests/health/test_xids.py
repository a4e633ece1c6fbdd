"""docs/health.md tells what each Xid does by default, all of them."""

import re

import pytest

from deviceplugin.health.xids import TABLE, UNKNOWN
from deviceplugin.model.health import Response
from tests.project import ROOT

TEXT = (ROOT / "docs/health.md").read_text()
TOLD = dict(re.findall(r"^\| `(\w+)` \| ([^|]*\d[^|]*|all others[^|]*) \|$", TEXT, re.MULTILINE))


@pytest.mark.parametrize("response", [one for one in Response if one is not UNKNOWN])
def test_the_xids_of_each_response_are_told(response: Response) -> None:
    told = TOLD[response.value].partition(":")[0]
    assert [int(number) for number in told.split(",")] == [
        number for number, entry in sorted(TABLE.items()) if entry.response is response
    ]


def test_the_rest_is_told_to_do_what_an_unknown_one_does() -> None:
    assert TOLD[UNKNOWN.value] == "all others, unknown ones too"
