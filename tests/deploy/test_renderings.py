"""Golden renderings: what the chart makes of values that people have.

`python -m tests.deploy.test_renderings` writes them anew.
"""

import pytest

from tests.deploy.chart import CASES, cases, chart, notes, render_text


@pytest.mark.parametrize("name", cases())
def test_rendering(name: str) -> None:
    assert render_text(cases()[name]) == (CASES / name / "expected.yaml").read_text(), (
        "if the change is meant: `python -m tests.deploy.test_renderings`, and read the difference"
    )


def test_the_chart_says_what_it_is() -> None:
    assert chart().metadata["name"] == "gpu-device-plugin"


def test_nvidias_own_values_render_as_no_values_do() -> None:
    assert render_text(cases()["nvidia-values"]) == render_text()
    assert notes(cases()["nvidia-values"]) == notes()


if __name__ == "__main__":
    for case, values in cases().items():
        (CASES / case / "expected.yaml").write_text(render_text(values))
