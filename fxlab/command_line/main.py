"""The command ``fxlab``: its arguments, and its behaviour on errors."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from fxlab._version import __version__
from fxlab.base.author_frames import placed_words
from fxlab.base.checks import file_to_write
from fxlab.command_line.answer import Answer, CommandError, ExitCode, plain_warnings, visible
from fxlab.command_line.model_source import DTYPES

_DESCRIPTION = "See what graph transformations do to a PyTorch model, and whether it matters."
_MODEL = (
    "a config.json of transformers; a directory with one, and weights; the name of a model on the Hugging "
    "Face hub; a program saved by torch.export.save (.pt2); package.module:name or "
    "file.py:name, a model in Python code or a function there that returns one, or one and its inputs"
)
_EXIT_CODES = """\
exit codes: 0 done, and the same up to rounding where models were compared; 1 different, or for `doctor`
something that fxlab needs does not work; 2 bad arguments, or a file or model that is missing; 3 not
traced; 4 a pass failed; 5 not compared, or nothing to compare (NaN, infinite or empty outputs); 6 the
script of `compile` failed; 70 unexpected; 130 Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit code.

    ``arguments``: the arguments of ``fxlab`` on the command line; those of this process if left out.
    """
    own, of_script = _with_script_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = command_parser()
    if not own:
        parser.print_help()
        return ExitCode.DONE
    if own[0] not in COMMANDS and not own[0].startswith("-"):
        parser.error(_no_such_command(own[0]))
    options, unknown = parser.parse_known_args(own)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(unknown[0], options)}")
    if options.command == "compile":
        options.arguments += of_script
    told = options.traceback
    try:
        # A script that is run hears its warnings as it does without fxlab.
        is_script = options.command == "compile"
        with nullcontext() if is_script else plain_warnings():
            answer, code = _command(options.command)(options)
        _write(answer, options)
        return code
    except KeyboardInterrupt as error:
        return _failed("interrupted", ExitCode.INTERRUPTED, error if told else None)
    except SystemExit as end:  # of a model's or pass's code, whose status would be taken for the answer
        words = 'this code ends Python, so there is no answer. Keep it under `if __name__ == "__main__"`.'
        return _failed(f"{placed_words(end)}: {words}", ExitCode.BAD_USAGE, end if told else None)
    except CommandError as error:
        # Its own words are the last line in any case.
        return _failed(str(error), error.code, (error.__cause__ or error) if told else None)
    except Exception as error:
        words = f"{type(error).__name__}: {error}".strip()
        return _failed(f"{words} (--traceback shows where)", ExitCode.UNEXPECTED, error if told else None)


COMMANDS = ("trace", "report", "check", "compare", "compile", "doctor")
_ELSEWHERE = {
    "`fxlab report MODEL --passes NAMES` applies passes and judges the model": (
        "verdict judge apply run transform optimize optimise html"
    ),
    "`fxlab report MODEL -o page.html` writes the page; in Jupyter, fxlab.inspect(model) shows it": (
        "lab notebook ui serve view show inspect"
    ),
    "`fxlab trace MODEL --nodes` prints the nodes": "nodes table graph summary info",
    "`fxlab compare REFERENCE CANDIDATE` compares two models": "diff assert weights assert-same",
    "`fxlab doctor` lists the passes on offer": "passes list ls list-passes",
    "`fxlab compile script.py` records a script": "record record-compile",
    "in Python, fxlab.draw(session).save(path) writes a picture": "draw svg",
    "in Python, fxlab.export(session, path) writes .pt2": "export onnx save convert",
    "in Python, fxlab.benchmark(session) times passes": "benchmark time bench",
    "in Python, fxlab.profile(session) measures nodes": "profile cost",
    "`fxlab report MODEL --passes NAMES` names the pass; in Python, fxlab.bisect(session) the rewrite": (
        "bisect"
    ),
    "in Python, session.explain(name) tells what a pass would change": "explain candidates",
    "in Python, session.why_not(name, node) tells why not": "why-not why refusals",
}
"""What leads to the thing -> the words of former versions and of other programs for its command."""


_OTHER_OPTIONS = {
    **dict.fromkeys(("--format", "--csv"), "--json prints JSON"),
    **dict.fromkeys(("--shape", "--shapes", "--input-shape", "--input-size"), "--inputs 2x8 makes a tensor"),
    **dict.fromkeys(("--apply", "--transform"), "--passes names passes"),
}
"""Options of former versions and of other programs -> what is there instead."""


def _no_such_command(word: str) -> str:
    """Return a sentence that leads from a word that is no command to what does it."""
    spelt = word.lower().replace("_", "-")
    where = next((words for words, others in _ELSEWHERE.items() if spelt in others.split()), None)
    if where is None:
        near = get_close_matches(spelt, COMMANDS, n=1, cutoff=0.6)
        where = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
    return f"there is no command {word!r}: {where}"


def _hint(unknown: str, options: argparse.Namespace) -> str:
    """Return the end of the sentence about an argument that a command does not have."""
    if options.command == "compile":
        return "; put those of the script behind --"
    name = unknown.partition("=")[0]
    if name in _OTHER_OPTIONS:
        return f"; {_OTHER_OPTIONS[name]}"
    if unknown.startswith("-"):
        known = [name for name in options.known_options if name.startswith("--")]
        near = get_close_matches(name, known, n=1, cutoff=0.6)
        return f"; did you mean {near[0]}?" if near else ""
    if getattr(options, "passes", None):
        return "; names of passes are separated by commas"
    if options.command in ("report", "check", "trace"):
        return "; two models are compared by `fxlab compare REFERENCE CANDIDATE`"
    return ""


def _command(name: str) -> Callable[[argparse.Namespace], tuple[Answer | str, ExitCode]]:
    """Return the function of a command; its file is imported now, as ``--help`` needs no torch."""
    if name == "compare":
        from fxlab.command_line.commands.compare import compare

        return compare
    if name == "compile":
        from fxlab.command_line.commands.compile import compile

        return compile
    if name == "doctor":
        from fxlab.command_line.commands.doctor import doctor

        return doctor
    from fxlab.command_line.commands.report import check, report
    from fxlab.command_line.commands.trace import trace

    return {"trace": trace, "report": report, "check": check}[name]


def _write(answer: Answer | str, options: argparse.Namespace) -> None:
    try:
        if isinstance(answer, Answer):
            answer.write(sys.stdout, as_json=options.json, top=options.top)
        else:
            sys.stdout.write(visible(answer))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough (`fxlab trace ... | head`); Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(words: str, code: ExitCode, told: BaseException | None) -> int:
    if told is not None:
        traceback.print_exception(told)
    print(visible(f"fxlab: {words}"), file=sys.stderr)
    return code


def _with_script_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of the command ``compile`` from those after ``--``, which are its script's."""
    own = [*arguments]
    if own[:1] != ["compile"] or "--" not in own:
        return own, []
    place = own.index("--")
    return own[:place], own[place + 1 :]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print the error and how to learn more; the whole usage would bury it."""
        self.exit(ExitCode.BAD_USAGE, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of the command, by which shtab and the like complete its words in a shell."""
    parser = _Parser(prog="fxlab", description=_DESCRIPTION, epilog=_EXIT_CODES, formatter_class=_Help)
    parser.add_argument("--version", action="version", version=f"fxlab {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, words: str, *, passes: bool = True) -> argparse.ArgumentParser:
        made = _add(commands, name, words)
        _add_model(made)
        if passes:
            _add_passes(made)
        return made

    page: dict[str, Any] = {"type": _page, "metavar": "FILE", "help": "the HTML file to write"}
    words = "Apply passes to a model, tell whether it is the same, write a report."
    report = command("report", words)
    report.add_argument("-o", "--output", **page)
    report.add_argument(
        "--title", default="", help="the title of the page; the name of the model if left out"
    )
    words = "save what is on as a small JSON file, for `fxlab check`"
    report.add_argument("--save", type=_file, metavar="FILE", help=words)

    words = "Apply a saved stack of passes, or some by name, to a model, and tell whether it is the same."
    check = command("check", words)
    words = "what `session.save` or `fxlab report --save` wrote; --passes then gives its passes in code"
    check.add_argument("--session", metavar="FILE", help=words)
    words = "fail also if graph, parameters or versions are not as saved"
    check.add_argument("--strict", action="store_true", help=words)
    check.add_argument("-o", "--output", **page)

    words = "Tell whether two models of any origin compute the same, and where they part."
    compare = _add(commands, "compare", words)
    _add_model(compare, "REFERENCE")
    compare.add_argument("candidate", metavar="CANDIDATE", help="the other model, in the same forms")
    words = "what the candidate is called with, if that is not the same"
    compare.add_argument("--candidate-inputs", metavar="FILE", help=words)
    words = "the outputs to compare, as logits=0,hidden=1: of the reference, and of the candidate"
    compare.add_argument("--outputs", type=_pairs, metavar="PAIRS", help=words)
    compare.add_argument("-o", "--output", **page)

    trace = command("trace", "Trace a model, and tell what its graph holds for.", passes=False)
    shown = trace.add_mutually_exclusive_group()
    shown.add_argument("--code", action="store_true", help="print the code of the graph")
    shown.add_argument("--nodes", action="store_true", help="print a table of the nodes")
    words = "save the graph module, with torch.save"
    trace.add_argument("-o", "--output", type=_file, metavar="FILE", help=words)

    words = "Run a script, and report on each graph that torch.compile makes of its code."
    usage = (
        "%(prog)s [options] SCRIPT [ARGUMENT ...] [options] [-- ARGUMENT ...]\n"
        "       %(prog)s -o FOLDER -- COMMAND [ARGUMENT ...]"
    )
    compiled = _add(commands, "compile", words, usage=usage)
    words = "the file of a Python script, run as it is; without one, COMMAND is started, and each of its "
    words += "processes writes a record into FOLDER"
    compiled.add_argument("script", nargs="?", metavar="SCRIPT", help=words)
    words = "what the script is given; behind -- whatever begins with a dash"
    compiled.add_argument("arguments", nargs="*", metavar="ARGUMENT", help=words)
    words = "SCRIPT is the name of a module, as for `python -m`"
    compiled.add_argument("-m", "--module", action="store_true", help=words)
    words = "the HTML file to write, or a folder for it and for its tables"
    compiled.add_argument("-o", "--output", type=_page_or_folder, metavar="FILE", help=words)
    words = "no verdicts that take runs in float64, and no costs and errors of nodes"
    compiled.add_argument("--no-measure", action="store_true", help=words)

    words = "Tell what is installed, what of fxlab works here and what to do about the rest, and list passes."
    _add(commands, "doctor", words)
    return parser


class _CommaSeparated(argparse.Action):
    """An option that may be given several times, or with several values that commas separate."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None) -> None:
        former = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if former is None else f"{former},{values}")


class _Help(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)


def _add(commands: Any, name: str, words: str, **more: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=words, description=words, epilog=_EXIT_CODES, formatter_class=_Help, **more
    )
    words = "print JSON: facts by name, and each table as a list of rows, in a fixed order"
    parser.add_argument("--json", action="store_true", help=words)
    parser.add_argument("--top", type=_positive, metavar="N", help="print at most so many rows of a table")
    parser.add_argument("--traceback", action="store_true", help="show where an error came from")
    parser.set_defaults(known_options=parser._option_string_actions)
    return parser


def _add_passes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-p", "--passes"),
        action=_CommaSeparated,
        default=None,
        metavar="NAMES",
        help="passes, separated by commas; `all` is all. They are applied in the order in which "
        "`fxlab doctor` lists them, and then those in Python code (file.py:name)",
    )


def _add_model(parser: argparse.ArgumentParser, name: str = "MODEL") -> None:
    parser.add_argument("model", metavar=name, help=_MODEL)

    model = parser.add_argument_group("the model")
    model.add_argument(
        "--architecture",
        metavar="CLASS",
        help="the class of transformers, such as BertForMaskedLM; the one that the configuration names, or "
        "the base model, if left out",
    )
    model.add_argument("--dtype", choices=DTYPES, help="convert to this dtype")
    model.add_argument("--device", help="run there: cpu, cuda, cuda:1, ...")
    model.add_argument("--attention", choices=("eager", "sdpa"), help="how transformers computes attention")
    weights = model.add_mutually_exclusive_group()
    weights.add_argument("--meta", action="store_true", help="no weights: nothing is run or compared")
    weights.add_argument("--random-weights", action="store_true", help="do not load the weights")
    model.add_argument("--seed", type=int, default=0, help="of random weights (0)")
    model.add_argument(
        "--trust",
        action="store_true",
        help="load a .pt2 file that holds more than tensors and operators, whatever code it runs as you",
    )

    inputs = parser.add_argument_group("the inputs, made from the configuration if left out")
    words = (
        "a .safetensors or .npz file, one of torch.save, file.py:name, or sizes of random numbers, of two "
        "tensors: 2x8,2x4"
    )
    inputs.add_argument("-i", "--inputs", metavar="FILE", help=words)
    inputs.add_argument("--batch-size", type=_positive, default=2, metavar="N", help="(2)")
    inputs.add_argument("--length", type=_positive, metavar="N", help="of the sequences")

    tracing = parser.add_argument_group("tracing")
    tracing.add_argument("--fixed", action="store_true", help="for the sizes of these inputs only")
    tracing.add_argument("--no-check", action="store_true", help="do not compare the graph with the model")


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return number


def _pairs(text: str) -> dict[str, str | int]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name and other for name, _, other in pairs):
        raise argparse.ArgumentTypeError(f"expected pairs such as logits=0,hidden=1, got {text!r}")
    return {name: int(other) if other.isdecimal() else other for name, _, other in pairs}


def _file(text: str, *suffixes: str) -> str:
    # Checked before a model is loaded and traced, which may take minutes.
    try:
        file_to_write(text, "path", *suffixes)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("path: ").rstrip(".")) from error
    return text


def _page(text: str) -> str:
    return _file(text, ".html", ".htm")


def _page_or_folder(text: str) -> str:
    return _page(text) if Path(text).suffix else text
