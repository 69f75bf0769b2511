"""Mutation testing: the share of small mistakes, planted in the code one at a time, that the tests notice.

Each step keeps its results in a folder, so that a run goes on where it was::

    python -m benchmarks.mutants map        # run the tests once: which lines each runs, and how long it takes
    python -m benchmarks.mutants run        # run a sample of mutants against the fastest tests of their lines
    python -m benchmarks.mutants survivors  # the lines of which no test has noticed that they were changed

A mutant is run against the tests of its line in any room, the fastest first, up to a time, and one that
survives also against all tests of its module. The mistakes are those of mutmut (its `mutation_operators`),
and calls that are removed. Not planted is what no behaviour depends on: annotations, decorators, docstrings,
prose, words of errors and reasons, `strict=` of `zip`; nor positional arguments that go, which every call
notices. mutmut's own runner puts a dispatcher in front of each function, and fxlab looks at frames and
sources. Here a process that has imported torch forks for each mutant, and the fork imports fxlab with one
file changed.
"""

from __future__ import annotations

import argparse
import ast
import bisect
import contextlib
import functools
import importlib
import itertools
import json
import os
import random
import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest

# Torch would import fxlab, which each fork is to import itself.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

ROOT = Path(__file__).parent.parent
CODE = "fxlab"
# Without tests of browsers and of whole processes, which take long, and those that trace lines themselves.
APART = (
    "browser",
    "base/test_interrupts.py",
    "test_soak.py",
    "test_counts.py",
    "test_notebooks.py",
    "test_packaging.py",
)
TESTS = ("tests", CODE, *(f"--ignore=tests/{name}" for name in APART))
QUICK = ("-m", "not (slow or weekly or accelerator or browser)")
# Without pytest's own imports, which take precedence: fxlab is a plugin of pytest.
PYTEST = ("-q", "--assert=plain", "-p", "no:xdist", "-p", "no:cacheprovider")
# A mutant may loop: several times what its tests take, and a start.
CPU_SECONDS = 30, 4
AT_FIRST = 20


class Mutant(NamedTuple):
    """A mistake: its place in the list of those of its file, and the line as it is and as it becomes."""

    file: str
    line: int
    number: int
    was: str
    becomes: str


class Outcome(NamedTuple):
    """What became of a mutant: the test that failed, or how many have passed."""

    mutant: Mutant
    killed_by: str | None
    tests: int


# The mutants of a file.


class MutatedFile:
    """A file of code and all the mistakes that can be planted in it."""

    def __init__(self, file: str) -> None:
        import libcst as cst
        from libcst.metadata import MetadataWrapper, PositionProvider
        from mutmut.mutation.mutators import mutation_operators

        found: list[tuple[cst.CSTNode, cst.CSTNode]] = []

        class Places(cst.CSTVisitor):
            def on_visit(self, node: cst.CSTNode) -> bool:
                if no_behaviour(node):
                    return False
                if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call):
                    found.append((node, cst.Pass()))
                for kind, operator in mutation_operators:
                    if isinstance(node, kind):
                        found.extend((node, new) for new in operator(node) if is_worth_it(node, new))
                return True

        self.file = file
        wrapper = MetadataWrapper(cst.parse_module((ROOT / file).read_text()))
        self.module = wrapper.module
        self.module.visit(Places())
        lines = wrapper.resolve(PositionProvider)
        self.places = sorted(
            ((lines[node].start.line, node, new) for node, new in found), key=lambda place: place[0]
        )

    def text(self, number: int) -> str:
        """Return the whole file with one mistake."""
        _, node, new = self.places[number]
        return str(self.module.deep_replace(node, new).code)

    def mutant(self, number: int) -> Mutant | None:
        """Describe a mutant; none if it is no Python."""
        text = self.text(number)
        try:
            compile(text, self.file, "exec")
        except SyntaxError:
            return None
        before = self.module.code.splitlines()
        return Mutant(self.file, self.places[number][0], number, *changed(before, text.splitlines()))


mutated_file = functools.cache(MutatedFile)


def no_behaviour(node: Any) -> bool:
    """Whether nothing inside of a node can change what the code does, beside words that people read."""
    import libcst as cst
    import libcst.matchers as m

    if isinstance(
        node, cst.Annotation | cst.Decorator | cst.FormattedString | cst.Raise | cst.Import | cst.ImportFrom
    ):
        return True
    if m.matches(node, m.Arg(keyword=m.Name("strict"))):
        return True
    if m.matches(node, m.Call(func=m.Name("cast") | m.Name("TypeVar") | m.Attribute(value=m.Name("Reason")))):
        return True
    if m.matches(node, m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias")))):
        return True
    if isinstance(node, cst.Assign):
        return any(m.matches(target.target, m.Name("__all__")) for target in node.targets)
    return m.matches(node, m.If(test=m.Name("TYPE_CHECKING")))


def is_worth_it(node: Any, new: Any) -> bool:
    """Whether a mistake is none that every call notices, none of prose, and not the same as another."""
    import libcst as cst
    import libcst.matchers as m

    if isinstance(node, cst.Call) and isinstance(new, cst.Call):
        # An argument that goes, or is None: where its place alone says which it is, the next line stumbles.
        places = [sum(arg.keyword is None for arg in call.args) for call in (node, new)]
        gone = [arg.keyword for arg in node.args if all(arg is not kept for kept in new.args)]
        return places[0] == places[1] and all(keyword and keyword.value != "strict" for keyword in gone)
    if isinstance(node, cst.SimpleString):
        # A name of something; in other letters it is the same mistake once more.
        text = node.evaluated_value
        is_name = isinstance(text, str) and text != "" and not any(map(str.isspace, text))
        return is_name and new.evaluated_value == f"XX{text}XX"
    # No value and an empty one are hardly told apart.
    return not m.matches(node, m.Assign(value=m.Name("None")) | m.AnnAssign(value=m.Name("None")))


def changed(before: list[str], after: list[str]) -> tuple[str, str]:
    """Return the lines in which two texts differ, as they were and as they become."""
    start = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    was, becomes = before[start : len(before) - end], after[start : len(after) - end]
    return " ".join(" ".join(was).split()), " ".join(" ".join(becomes).split())


def sample(count: int, seed: int) -> list[Mutant]:
    """Draw mutants evenly over the lines of all files: one of each stretch of the list of all."""
    names = sorted(str(file.relative_to(ROOT)) for file in (ROOT / CODE).rglob("*.py"))
    files = [mutated_file(name) for name in names]
    every = [(file, number) for file in files for number in range(len(file.places))]
    count = min(count, len(every))
    draw = random.Random(seed)
    bounds = [len(every) * i // count for i in range(count + 1)]
    print(f"{len(every)} mutants of {len(files)} files, of which {count} are drawn")
    found = []
    for start, end in itertools.pairwise(bounds):
        stretch = draw.sample(every[start:end], end - start)
        valid = (mutant for file, number in stretch if (mutant := file.mutant(number)))
        found += [mutant for mutant in [next(valid, None)] if mutant]
    # A run that is broken off is a smaller sample.
    draw.shuffle(found)
    return found


# Which tests run a line.


class Durations:
    """A plugin of pytest that keeps how long each test took and which did not pass."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.append(report.nodeid)


class Lines(Durations):
    """A plugin that also keeps in which of coverage's contexts a test's lines run: its own, its fixtures'."""

    def __init__(self, measured: coverage.Coverage) -> None:
        super().__init__()
        self.measured = measured
        self.context = ""
        self.fixtures: dict[Any, str] = {}
        self.contexts: dict[str, list[str]] = {}

    @contextlib.contextmanager
    def within(self, context: str) -> Iterator[None]:
        before, self.context = self.context, context
        self.measured.switch_context(context)
        try:
            yield
        finally:
            self.context = before
            self.measured.switch_context(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        # Made for one test, a module's fixture is used by others, too.
        context = self.fixtures[fixturedef] = f"fixture {len(self.fixtures)}"
        with self.within(context):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any) -> Generator[None, Any, Any]:
        with self.within(item.nodeid):
            result = yield
        used = itertools.chain(*item._fixtureinfo.name2fixturedefs.values())
        made = [self.fixtures[fixture] for fixture in used if fixture in self.fixtures]
        self.contexts[item.nodeid] = [item.nodeid, *made]
        return result


def make_map(folder: Path, more: list[str]) -> None:
    """Run the tests once and keep which lines each runs."""
    measured = coverage.Coverage(str(folder / "lines"), config_file=False, source=[str(ROOT / CODE)])
    measured.erase()
    plugin = Lines(measured)
    with measured.collect():
        pytest.main([*PYTEST, *TESTS, *QUICK, *more], plugins=[plugin])
    measured.save()
    modules = sorted(name for name, module in sys.modules.items() if is_installed(module))
    kept = {"seconds": plugin.seconds, "modules": modules, "contexts": plugin.contexts}
    (folder / "tests.json").write_text(json.dumps(kept, indent=1))


def is_installed(module: Any) -> bool:
    return "site-packages" in (getattr(module, "__file__", None) or "")


class TestMap:
    """Tests by the lines that they run, the fastest first; those of the mirrored file before others.

    Of a parametrized test each instance has its turn after the first ones of all tests.
    """

    def __init__(self, folder: Path) -> None:
        kept = json.loads((folder / "tests.json").read_text())
        self.measured = coverage.CoverageData(str(folder / "lines"))
        self.measured.read()
        self.seconds: dict[str, float] = kept["seconds"]
        self.modules: list[str] = kept["modules"]
        self.tests_of: defaultdict[str, set[str]] = defaultdict(set)
        for name, contexts in kept["contexts"].items():
            for context in contexts:
                self.tests_of[context].add(name)

    def tests(self, file: str, line: int, seconds: float) -> list[str]:
        """Return tests that run a line, as many as fit in some time; of an import, those of its file."""
        contexts = self.measured.contexts_by_lineno(str(ROOT / file))
        here = self.of_lines(contexts, statement(file, line)) or self.of_lines(contexts, contexts)
        chosen: list[str] = []
        # One instance of each test before others of the same: they would take up the time.
        instances: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        ranked = sorted(here, key=lambda name: self.rank(name, file))
        turns = {name: next(instances[name.partition("[")[0]]) for name in ranked}
        for name in sorted(ranked, key=turns.__getitem__):
            if chosen and self.seconds[name] > seconds:
                continue
            seconds -= self.seconds[name]
            chosen.append(name)
        return chosen

    def of_lines(self, contexts: dict[int, list[str]], lines: Iterable[int]) -> set[str]:
        every = {context for line in lines for context in contexts.get(line, ())}
        return set().union(*(self.tests_of[context] for context in every)) & self.seconds.keys()

    def rank(self, name: str, file: str) -> float:
        return self.seconds[name] * (0.2 if is_mirrored(name.partition("::")[0], file) else 1)

    def of_module(self, file: str) -> list[str]:
        return [name for name in self.seconds if is_mirrored(name.partition("::")[0], file)]


def statement(file: str, line: int) -> range:
    """Return the lines of the statement that a line is part of."""
    tree = ast.parse((ROOT / file).read_text())
    starts = sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)})
    start = bisect.bisect(starts, line)
    return range(starts[start - 1] if start else line, starts[start] if start < len(starts) else line + 1)


def is_mirrored(test: str, file: str) -> bool:
    """Whether a file of tests is that of a file of code: the same name, in the same room."""
    path, tests = Path(file), Path(test)
    name = path.parent.name if path.stem == "__init__" else path.stem
    is_named = tests.stem.removeprefix("test_") == name
    return test == file or (is_named and tests.parts[1:-1][:1] == path.parts[1:-1][:1])


# One mutant, in a process of its own.


class Planted(MetaPathFinder):
    """Imports one file with another text."""

    def __init__(self, file: str, text: str) -> None:
        self.path = str(ROOT / file)
        self.text = text

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname.split(".")[0] == CODE else None
        if spec and spec.origin == self.path:
            spec.loader = ChangedFile(fullname, self.path, self.text)
            return spec
        return None


class ChangedFile(SourceFileLoader):
    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.path, "exec", dont_inherit=True)


def run(tests: list[str], seconds: float, planted: tuple[str, str] | None, first: bool = True) -> list[str]:
    """Run tests in a fork, and return those that fail; what ends the process otherwise is named "process"."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 70
        try:
            limit = int(CPU_SECONDS[0] + CPU_SECONDS[1] * seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
            if planted:
                # Before pytest, which imports the files whose docstrings are tests itself.
                file, text = planted
                sys.meta_path.insert(0, Planted(file, text))
                importlib.import_module(file.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
            plugin = Durations()
            status = int(pytest.main([*PYTEST, *(["-x"] if first else []), *tests], plugins=[plugin]))
            with os.fdopen(writer, "w") as answer:
                answer.write("\n".join(dict.fromkeys(plugin.failed)))
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as answer:
        failed = answer.read().split("\n")
    _, status = os.waitpid(child, 0)
    failed = [name for name in failed if name]
    return failed or (["process"] if status else [])


def run_sample(folder: Path, mutants: list[Mutant], seconds: float) -> list[Outcome]:
    """Run each mutant against its tests; outcomes are kept one by one."""
    known = TestMap(folder)
    for name in known.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    assert "fxlab" not in sys.modules, "A fork imports fxlab itself."
    if failed := run([min(known.seconds, key=known.seconds.__getitem__)], 1, None):
        raise RuntimeError(f"Tests fail in a fork on the code as it is: {failed}.")
    path = folder / "outcomes.jsonl"
    done = {outcome.mutant: outcome for outcome in outcomes(folder)}
    for i, mutant in enumerate(mutants):
        tests = known.tests(mutant.file, mutant.line, seconds)
        # With more seconds than before, what has survived meets more tests.
        if mutant in done and (done[mutant].killed_by or len(tests) <= done[mutant].tests):
            continue
        file = mutated_file(mutant.file)
        planted = mutant.file, file.text(mutant.number)
        # Most mutants fail one of the first tests, for which few files are collected.
        for some in (tests[:AT_FIRST], tests[AT_FIRST:], known.of_module(mutant.file)):
            taken = sum(known.seconds[name] for name in some)
            if failed := run(some, taken, planted) if some else []:
                break
        outcome = Outcome(mutant, failed[0] if failed else None, len(tests))
        with path.open("a") as stream:
            print(json.dumps([*mutant, outcome.killed_by, outcome.tests]), file=stream)
        print(
            f"{i + 1}/{len(mutants)} {mutant.file}:{mutant.line} {outcome.killed_by or 'SURVIVED'}",
            flush=True,
        )
    wanted = set(mutants)
    return [outcome for outcome in outcomes(folder) if outcome.mutant in wanted]


def outcomes(folder: Path) -> list[Outcome]:
    path = folder / "outcomes.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = (Outcome(Mutant(*row[:5]), row[5], row[6]) for row in rows)
    return list({outcome.mutant: outcome for outcome in found}.values())


def report(found: list[Outcome]) -> None:
    """Print the share that was killed, for each folder and in all."""
    by_folder: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in found:
        by_folder["/".join(outcome.mutant.file.split("/")[:2])].append(outcome)
    for name, some in [*by_folder.items(), ("all", found)]:
        killed = sum(outcome.killed_by is not None for outcome in some)
        print(f"{name}: {killed} of {len(some)} killed, {killed / len(some):.0%}")


def control(found: list[Outcome]) -> list[Outcome]:
    """Run the tests that have noticed mutants on the code as it is; those that fail have noticed none."""
    killers = {outcome.killed_by for outcome in found} - {None, "process"}
    failed = run(sorted(name for name in killers if name), 600, None, first=False)
    print(f"{len(killers)} tests noticed mutants, and {len(failed)} fail without one", *failed, sep="\n  ")
    return [one._replace(killed_by=None) if one.killed_by in failed else one for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=("map", "run", "survivors"))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60, help="of tests, for each mutant")
    arguments, more = parser.parse_known_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    if arguments.step == "map":
        make_map(arguments.folder, more)
    elif arguments.step == "run":
        drawn = sample(arguments.count, arguments.seed)
        found = run_sample(arguments.folder, drawn, arguments.seconds)
        report(control(found))
    else:
        for mutant, killed_by, tests in outcomes(arguments.folder):
            if killed_by is None:
                print(f"{mutant.file}:{mutant.line} ({tests} tests)\n  - {mutant.was}\n  + {mutant.becomes}")


if __name__ == "__main__":
    main()
