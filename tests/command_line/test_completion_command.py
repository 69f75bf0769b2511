"""``fxlab completion``: what a shell completes are the words that the command takes."""

import shutil
import subprocess

import pytest


def completed(script, *words):
    """Return what bash offers for the last of some words."""
    typed = " ".join(f"'{word}'" for word in words)
    given = f"COMP_WORDS=(fxlab {typed}); COMP_CWORD={len(words)}"
    asked = f"{script}\n{given}; _fxlab; printf '%s\\n' ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options(fxlab):
    ended = fxlab("completion", "bash")
    assert (ended.code, ended.err) == (0, "")
    assert completed(ended.out, "re") == ["report"]
    assert {"trace", "doctor", "completion"} <= {*completed(ended.out, "")}
    assert completed(ended.out, "report", "--pas") == ["--passes"]
    assert completed(ended.out, "completion", "f") == ["fish"]
    assert completed(ended.out, "nothing", "") == []


def test_zsh_takes_the_same_script_and_fish_one_of_its_own(fxlab):
    assert fxlab("completion", "zsh").out.endswith(fxlab("completion", "bash").out)
    lines = fxlab("completion", "fish").out.splitlines()
    assert "complete -c fxlab -n '__fish_seen_subcommand_from report' -l passes" in lines
    assert "complete -c fxlab -n '__fish_seen_subcommand_from report' -s o" in lines


def test_another_shell_is_refused_with_those_that_there_are(fxlab):
    ended = fxlab("completion", "csh")
    assert ended.code == 2
    assert "bash" in ended.err
