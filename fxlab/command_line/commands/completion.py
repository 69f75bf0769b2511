"""``fxlab completion``: a script with which a shell completes the command's words."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from fxlab.command_line.exit_code import ExitCode

_BASH = """\
_fxlab() {{
    local words="{commands}"
    if [ "$COMP_CWORD" -gt 1 ]; then
        case "${{COMP_WORDS[1]}}" in
{cases}
            *) words="" ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _fxlab fxlab
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def completion(options: argparse.Namespace) -> tuple[str, ExitCode]:
    """Write the names of all commands and options as a script of a shell; files are completed as always."""
    words: Mapping[str, Sequence[str]] = options.words()
    if options.shell == "fish":
        return _fish(words), ExitCode.DONE
    cases = "\n".join(f'            {name}) words="{" ".join(own)}" ;;' for name, own in words.items())
    script = _BASH.format(commands=" ".join(words), cases=cases)
    return (_ZSH + script if options.shell == "zsh" else script), ExitCode.DONE


def _fish(words: Mapping[str, Sequence[str]]) -> str:
    lines = [f"complete -c fxlab -n __fish_use_subcommand -a '{' '.join(words)}'"]
    for name, own in words.items():
        given = f"-n '__fish_seen_subcommand_from {name}'"
        for option in own:
            if option.startswith("--"):
                lines.append(f"complete -c fxlab {given} -l {option[2:]}")
            elif option.startswith("-"):
                lines.append(f"complete -c fxlab {given} -s {option[1:]}")
            else:
                lines.append(f"complete -c fxlab {given} -a {option}")
    return "\n".join(lines) + "\n"
