"""Test the checker of the language: the turns and docstrings that it finds, and the text that it leaves alone."""

import pytest

from support.language import files, violations
from support.paths import ROOT


@pytest.mark.parametrize(
    ("suffix", "source", "found"),
    [
        (".md", "Nobody asks.", [(1, "banned turn: Nobody")]),
        (
            ".md",
            "One.\n\nThe gateway goes on as\never, whoever asks.",
            [(3, "banned turn: as ever"), (4, "banned turn: whoever")],
        ),
        (".md", "> It is told\n> of the client.", [(1, "banned turn: told of")]),
        (".yaml", "# a key who\n# has a limit\nname: x", [(1, "banned turn: who has")]),
        (".html", "<p>all of which</p>", [(1, "banned turn: of which")]),
        (".py", "a = 1\n# there is none\n", [(2, "banned turn: is none")]),
        (".py", "a = 1  # told\nb = 'of which'\n", [(2, "banned turn: of which")]),
        (".py", "raise Refused(f'nobody knows {name}')\n", [(1, "banned turn: nobody")]),
        (".py", '"""Whether it runs."""\n', [(1, "docstring begins with a pronoun: Whether")]),
        (".py", "class A:\n    '''What is it?'''\n", [(2, "docstring begins with a pronoun: What")]),
        (".py", 'async def f():\n    """\n    it runs\n    """\n', [(2, "docstring begins with a pronoun: it")]),
    ],
)
def test_language_finds_turns_and_pronouns(suffix, source, found):
    assert list(violations(source, suffix)) == found


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".md", "The value is `none`. The gateway returns none of them. Everybody is told off."),
        (".py", "if nobody is None:  # the key is None, or it is not\n    whoever = told . of\n"),
        (".py", "def f():\n    '''Return whether it runs, and what it says.'''\n"),
        (".py", "x = 'It runs.'\n'''Who runs?'''\n"),
        (".yaml", "names: [someone who]\nhas: 1"),
    ],
)
def test_language_leaves_plain_text_and_code_alone(suffix, source):
    assert list(violations(source, suffix)) == []


def test_language_reads_code_docs_and_configuration():
    names = {str(path.relative_to(ROOT)) for path in files()}
    assert {
        "gateway/sse.py",
        "docs/reference/clients.md",
        "config/gateway.yaml",
        "README.md",
        "CONTRIBUTING.md",
    } <= names
