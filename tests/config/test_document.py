"""YAML by the 1.2 core rules, bounded, and text that reads back equal."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.config.document import (
    MAX_NODES,
    Plain,
    dump_document,
    load_document,
    parse_document,
    repeated_keys,
    to_plain,
)
from deviceplugin.errors import ConfigError


def read(text: str) -> Plain:
    return to_plain(load_document(text.encode(), "node.yaml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:0", "1:0"),
        ("[1:0, 2:1]", ["1:0", "2:1"]),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("0x10", 16),
        ("0o17", 15),
        ("017", 17),
        ("-3", -3),
        ("1_000", "1_000"),
        ("0b1", "0b1"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.INF", -math.inf),
        ("2001-01-01", "2001-01-01"),
        ("~", None),
        ("null", None),
        ("", None),
        ("# nothing", None),
        ("---\n", None),
        ('"1"', "1"),
        ("|\n  a\n  b\n", "a\nb\n"),
        ('{"a": [1, true, null, "x\\u00e9\\/"]}', {"a": [1, True, None, "xé/"]}),
        ("\ufeffa: 1", {"a": 1}),
        ("{1: a, true: b}", {"1": "a", "true": "b"}),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
    ],
)
def test_values_follow_the_core_schema(text: str, value: Plain) -> None:
    assert read(text) == value
    assert type(read(text)) is type(value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a: &x 1\nb: *x\n", "node.yaml:1: found an anchor (&x)"),
        (b"a: 1\nb: *x\n", "node.yaml:2: found an alias (*x)"),
        (b"a: !!python/object:os.system x\n", 'node.yaml:1: found a tag ("tag:yaml.org,2002:python/object:os.system")'),
        (b"a: ! x\n", 'node.yaml:1: found a tag ("!")'),
        (b"a: 1\n---\nb: 1\n", "node.yaml:2: found a second document (`---`)"),
        (b"a: 1\n---\n", "node.yaml:2: found a second document"),
        (b"a:\n\tb: 1\n", "node.yaml:2: found a tab in the indentation"),
        (b"a: 1\nb: \x07\n", "node.yaml:2: found the character U+0007"),
        (b"a: 1\nb: \x00\n", "node.yaml:2: found a NUL byte"),
        (b"a: 1\nb: \xff\n", "node.yaml:2: found byte 0xff"),
        ("a: 1\n".encode("utf-16"), "node.yaml:1: found a NUL byte"),
        (b"[" * 500, "node.yaml:1: found nesting deeper than 64"),
        (b"[" * 100_000, "node.yaml:1: found text that is not YAML (exceeded maximum nesting depth"),
        (b"- " * 100_000, "node.yaml:1: found nesting deeper than 64"),
        (b"- a\n" * (MAX_NODES + 1), f"node.yaml:{MAX_NODES}: found more than {MAX_NODES} values"),
        (b"#" * (1024 * 1024 + 1), "node.yaml: found more than 1048576 bytes (1 MiB), expected at most that"),
        (b"a: " + b"9" * 41, "node.yaml:1: found a number of 41 digits"),
        (b"? [a]\n: b", "node.yaml:1: found a list or mapping as a key"),
        (b"a: 1\nb: {\n", "node.yaml:2: found text that is not YAML (did not find expected node content"),
        (b"a: 'x\nb: 2\n", "that began in line 1"),
        (b"a: 1\n b: 2\n", "node.yaml:2: found text that is not YAML (mapping values are not allowed"),
        (b"a: 1\na: 2\n", "node.yaml:2: a: found the key a second time, expected it once (first in line 1)"),
        (b"%YAML 1.2\n%YAML 1.2\n---\na\n", "found duplicate %YAML directive"),
    ],
)
def test_what_is_refused_says_where(data: bytes, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_document(data, "node.yaml")
    assert len(refused.value.problems) == 1
    assert said in refused.value.problems[0]


def test_a_repeated_key_is_found_wherever_it_stands_and_its_last_value_counts() -> None:
    root = parse_document(b"a:\n- {x: 1, y: 2, x: 3}\nb: 1\na: {c: 1, c: 2}\n", "f")
    assert [(path, one.line, one.first_line) for path, one in repeated_keys(root)] == [("a", 4, 1), ("a.c", 4, 4)]


_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    [
        "1:0",
        "no",
        "1e3",
        "0x10",
        "0o7",
        "",
        "~",
        "null",
        "true",
        "- a",
        "a: b",
        "#",
        " a",
        "a ",
        "yes",
        "é\n",
        "%",
        "1_0",
    ]
)
_scalars = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | _texts
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4), max_leaves=15
)


@settings(max_examples=200, deadline=None)
@given(_values)
def test_dumped_text_reads_back_equal(value: Plain) -> None:
    assert to_plain(load_document(dump_document(value).encode(), "dump")) == value


def test_dumped_text_is_what_a_person_would_write() -> None:
    gpu: Plain = {
        "index": 0,
        "uuid": "GPU-1",
        "model": "NVIDIA A100",
        "numa": None,
        "bus": "00:1",
        "links": [1, 2],
        "x": [],
    }
    assert dump_document({"gpus": [gpu]}) == (
        'gpus:\n  - index: 0\n    uuid: GPU-1\n    model: NVIDIA A100\n    numa: null\n    bus: "00:1"\n'
        "    links:\n      - 1\n      - 2\n    x: []\n"
    )


def test_only_plain_data_is_dumped() -> None:
    with pytest.raises(TypeError, match="cannot write a set"):
        dump_document({"a": {1}})  # type: ignore[dict-item]
