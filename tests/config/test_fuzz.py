"""Whatever the bytes, loading ends in a Config or a ConfigError with lines for people. Nothing else."""

import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.config.document import dump_document
from deviceplugin.config.load import parse_config
from deviceplugin.config.model import Config
from deviceplugin.config.settings import parse_settings
from deviceplugin.config.suggest import KNOWN_KEYS
from deviceplugin.errors import ConfigError, UsageError
from tests.config.files import EXAMPLES

WORDS = [
    *sorted({path.rpartition(".")[2].removesuffix("[]") for path in KNOWN_KEYS}),
    *(
        "all",
        "rest",
        "1:0",
        "no",
        "0x10",
        "1e3",
        "nvidia.com/gpu",
        "mixed",
        "spread",
        "model:*",
        "25%",
        "8Gi",
        "v1",
        "",
    ),
    *("<<", "- ", "\t", "&a", "*a", "!!str", "GPU-8a56a4bc-e184-a047-2620-be19fdf913d5", "0000:3b:00.0", "~", "null"),
]
LINES = [line for path in EXAMPLES for line in path.read_text().splitlines() if line.strip()]


def loads(data: bytes, *, lenient: bool = False) -> None:
    problems: tuple[str, ...] | None = None
    try:
        config = parse_config(data, "c.yaml", lenient=lenient)
    except ConfigError as error:
        problems = error.problems
    if problems is None:
        assert isinstance(config, Config)
    else:
        assert problems
        assert all(problem and "\n" not in problem for problem in problems)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.booleans())
def test_random_bytes(data: bytes, lenient: bool) -> None:
    loads(data, lenient=lenient)


_scalars = st.sampled_from(WORDS) | st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=8)
_trees = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["version", "flags", "devices", "resources", "sharing", "imex", "health"]), _trees)
)
def test_random_documents_of_known_words(tree: dict[str, object]) -> None:
    loads(dump_document(tree).encode("utf-8", "surrogatepass"))  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(WORDS) | st.sampled_from([":", "\n", "\n  ", " ", "[", "]", "{", "}", ",", '"', "#", "|"]))
)
def test_random_text_of_known_words(words: list[str]) -> None:
    loads("".join(words).encode())


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EXAMPLES), st.randoms(use_true_random=False), st.integers(1, 4), st.booleans())
def test_examples_with_mistakes(path: Path, source: random.Random, mistakes: int, lenient: bool) -> None:
    lines = path.read_text().splitlines()
    for _ in range(mistakes):
        place = source.randrange(len(lines))
        match source.randrange(5):
            case 0:
                del lines[place : place + 1]
            case 1:
                lines.insert(place, source.choice(LINES))
            case 2:
                lines[place] = lines[place].removeprefix("  ")
            case 3:
                lines[place] = source.choice(["  ", "\t", "- "]) + lines[place]
            case _:
                cut = source.randrange(len(lines[place]) + 1)
                lines[place] = lines[place][:cut] + source.choice(WORDS) + lines[place][cut + 1 :]
        lines = lines or [""]
    loads("\n".join(lines).encode(), lenient=lenient)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["--", "-", "--mig-strategy", "--pass-device-specs", "--imex-channel-ids=", "=", "x", "true"])
    ),
    st.dictionaries(
        st.sampled_from(["MIG_STRATEGY", "IMEX_CHANNEL_IDS", "DP_DISABLE_HEALTHCHECKS"]), st.text(max_size=6)
    ),
)
def test_random_usage_is_settings_or_a_usage_error(arguments: list[str], environment: dict[str, str]) -> None:
    refused: UsageError | None = None
    try:
        parse_settings(arguments, environment)
    except UsageError as error:
        refused = error
    assert refused is None or (str(refused) and refused.exit_status in (1, 2))
