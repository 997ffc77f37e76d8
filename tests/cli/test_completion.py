"""Test `gateway completion`: the scripts, and what they complete."""

import os
import subprocess
import sys

import pytest

from gateway.cli import main
from support.cli import run
from support.paths import ROOT


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("zsh", "#compdef gateway"),
        ("fish", "complete --command gateway"),
    ],
)
def test_completion_command_prints_the_script_of_a_shell(shell, line):
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert line in out and f"_GATEWAY_COMPLETE=complete_{shell}" in out


def test_completion_command_names_the_shells_that_it_knows():
    code, _, err = run("completion", "tcsh")
    assert code == 2 and "'bash', 'zsh', 'fish'" in err


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ch", ["check"]),
        ("serve --de", ["--demo"]),
        ("completion ", ["bash", "zsh", "fish"]),
        ("launch co", ["codex", "continue"]),
    ],
)
def test_completion_completes_commands_options_and_values(words, completed, monkeypatch, capsys):
    monkeypatch.setenv("_GATEWAY_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"gateway {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(f"gateway {words}".split(" ")) - 1))
    with pytest.raises(SystemExit) as caught:
        main.main()
    assert (caught.value.code or 0, capsys.readouterr().out.split()) == (0, completed)


def test_completion_works_in_bash(tmp_path):
    command = tmp_path / "gateway"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gateway "$@"\n')
    command.chmod(0o755)
    script = (
        'source <(gateway completion bash); COMP_WORDS=(gateway hea); COMP_CWORD=1; '
        '_gateway_completion gateway; echo "${COMPREPLY[@]}"'
    )  # fmt: skip
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("health\n", "")
