"""Fuzz each reader of external bytes for a moment; `make fuzz` runs longer."""

import json
import subprocess
import sys
from importlib.util import find_spec
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fuzz.mutation import mutated
from fuzz.target import MOST, Input, begun
from fuzz.targets import NAMES, PLANTED, find
from fuzz.text import NAMES as FORMATS
from support.format_events import untraced
from support.sampling import examples

SIZES = st.integers(0, 9) | st.integers(0, 255)  # of pieces; most faults are in what is cut finely
EXAMPLES = {"config": 60}  # it reads slowly
_LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
# What was found once, as small as it can be.
FOUND = {
    "formats": [
        # What stands in a member that a call has not, and that has no end, is listed as lost.
        begun('<tool_call>{"name": "f", "p": "', FORMATS.index("hermes_json"), 0, 0, 1, sizes=(99, 99)),
        begun('<tool_call>{"name": "f", "p": {"a"}}', FORMATS.index("hermes_json"), 0, 0, 1, sizes=(32, 99)),
        # No call, and nothing is lost with it.
        begun('Action: ```json\n[{"tool_name": "directly_answer", "why": 1}]\n```', FORMATS.index("commandr_plus")),
    ],
    "whole": [
        # Bytes that are no text, in what is passed over at first.
        begun(b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"\xff"}}]}}]}'),
        begun(b'{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":"\xff"}}}]}}]}'),
    ],
    "chunks": [
        *(begun(b'data: {"choices":[{"delta":{"annotations":[{"type":"url_citation","url":"\xff"}]}}]}', place) for place in (0, 6)),
        # What comes after a failure is not looked at, whether it comes with it or later.
        begun(b'data: {"choices":[{"index":0}]}\n\ndata: ' + b"x" * 70 + b'\n\ndata: {"choices":[{"index":1}]}\n\n', 6, 2),
    ],
    "services": [
        begun(b'[{"embedding": "\xff"}]', 1),
        begun('[{"embedding": "é"}]', 2),
        begun('[{"embedding": [1], "index": 0.0}]', 2),
    ],
    # A bias that is no number.
    "chat": [begun('{"model": "m", "messages": [{"role": "user", "content": "a"}], "logit_bias": {"1": "x"}}', 6)],
    "responses": [begun('{"model": "m", "input": "Hello", "stop": 7}'), begun('{"model": "m", "input": "Hello", "stop": [7]}')],
    "config": [
        begun(_LAUGHS),
        begun("server: {port: 0x" + "f" * 5000 + "}"),
        begun("a: [&a 1, &a 2, *a]"),
    ],
}  # fmt: skip


def inputs(target):
    """Return a strategy: any bytes, pieces of seeds and words, and mutated seeds."""
    seeds, words = [*target.seeds()], [word.encode() for word in target.words()]
    pieces = st.one_of(st.sampled_from(words), st.sampled_from(seeds).flatmap(piece), st.binary(max_size=12))
    contents = st.lists(pieces, max_size=8).map(b"".join)
    choices = st.lists(st.integers(0, 255), max_size=4)
    near = st.builds(lambda *parts: begun(parts[0], *parts[1], sizes=parts[2:]), contents, choices, SIZES, SIZES)
    ways = [st.binary(max_size=400), near, near]
    if target.mutated:
        changed = st.builds(target.mutated, st.sampled_from(seeds), st.randoms(use_true_random=False))
        ways += [changed, changed]
    return st.one_of(ways)


def piece(seed):
    content = Input.of(seed).content
    return st.tuples(st.integers(0, len(content)), st.integers(0, 200)).map(lambda at: content[at[0] : at[0] + at[1]])


def look(target, examples=200, **more):
    """Run the target with hypothesis; more: settings of hypothesis."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[*HealthCheck],
        **more,
    )
    @given(data=inputs(target))
    def check(data):
        target.check(data)

    check()


@pytest.mark.parametrize("name", NAMES)
@untraced
def test_fuzz_seeds_pass(name):
    target = find(name)
    for seed in target.seeds():
        target.check(seed)


@pytest.mark.parametrize("name", NAMES)
@untraced
def test_fuzz_with_hypothesis_finds_nothing(name):
    look(find(name), examples(EXAMPLES.get(name, 200)))


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, found in FOUND.items() for data in found])
def test_fuzz_findings_of_the_past_pass(name, data):
    find(name).check(data)


@pytest.mark.parametrize("name", NAMES)
@untraced
def test_fuzz_inputs_of_maximum_size_pass(name):
    target = find(name)
    first, *_, last = filter(None, (Input.of(seed).content and seed for seed in target.seeds()))
    for seed in (first, last):
        content = Input.of(seed).content
        target.check(begun(content * (MOST // len(content)), *Input.of(seed).choices, sizes=(255, 255)))


def test_fuzz_with_hypothesis_finds_a_planted_fault():
    with pytest.raises(AssertionError):
        look(find(PLANTED), 2000, phases=[Phase.generate])


def test_fuzz_targets_can_be_combined():
    both = find(f"{NAMES[0]},{PLANTED}")
    bad = begun(b"data: a\n\ndata: b\n\n", 0, 1, sizes=(7, 0))
    both.check(b"")
    both.check(b"\0" + bad)
    with pytest.raises(AssertionError):
        both.check(b"\1" + bad)
    assert {seed[0] for seed in both.seeds()} == {0, 1} and "data: " in both.words()


def test_fuzz_mutation_changes_values_and_keeps_json():
    head, value, tail = b"\0\0\0\0\0\0data: ", b'{"a": [1, {"b": "c"}], "d": null}', b"\n\ndata: [DONE]\n\n"
    changed = {mutated(head + value + tail, Random(seed)) for seed in range(100)}
    assert len(changed) > 30
    for one in changed:
        assert one.startswith(head) and one.endswith(tail)
        assert isinstance(json.loads(one[len(head) : -len(tail)]), dict)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0\0\0nothing", b"{not json}", b'{"a": "\xff"}', b"[]", b"{}"])
def test_fuzz_mutation_keeps_inputs_without_values(data):
    assert mutated(data, Random(1)) == data


if find_spec("atheris"):  # it has wheels for Linux on x86-64; elsewhere hypothesis looks alone
    from fuzz.run import environment, run

    def test_fuzz_with_atheris_finds_nothing(tmp_path):
        result = run(",".join(NAMES), "-runs=12000", "-seed=1", found=tmp_path)
        assert not result.failure, f"{result.failure} {result.file and result.file.read_bytes()!r}"
        assert result.inputs >= 12000 and result.edges > 1000

    def test_fuzz_with_atheris_finds_a_planted_fault(tmp_path):
        arguments = (PLANTED, "--runs", "300000", "--seed", "1", "--found", str(tmp_path))
        ran = subprocess.run(
            [sys.executable, "-m", "fuzz", *arguments], check=False, capture_output=True, text=True, env=environment()
        )
        [file] = tmp_path.iterdir()
        assert ran.returncode == 1 and f"python -m fuzz.one {PLANTED} {file}" in ran.stdout
        assert f"FAIL {PLANTED}\nAssertionError" in ran.stdout and repr(file.read_bytes()) in ran.stdout
        with pytest.raises(AssertionError):
            find(PLANTED).check(file.read_bytes())
