"""The types of the wire: written once in Python, and generated for the page."""

import re
import runpy
from pathlib import Path

import pytest

from fxlab.notebook.inspector import Inspector
from fxlab.notebook.page.messages import MESSAGES

ROOT = Path(__file__).parents[2]
write_protocol = runpy.run_path(str(ROOT / "frontend" / "make_protocol.py"))["write_protocol"]


def written(root: Path, protocol: str, notebook: str = "") -> str:
    for folder in ("fxlab/view_model", "fxlab/notebook", "frontend/src/base"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "fxlab/view_model/protocol.py").write_text(protocol)
    (root / "fxlab/notebook/screen.py").write_text(notebook)
    write_protocol(root)
    return (root / "frontend/src/base/wire.ts").read_text()


def test_types_become_those_of_typescript(tmp_path):
    text = written(
        tmp_path,
        'Kind: TypeAlias = Literal["a", "b"]\n"""Of two."""\n'
        'class Part(Base, TypedDict):\n    """A part."""\n'
        '    number: int | None\n    """Counts."""\n'
        "    rows: NotRequired[list[Kind | tuple[str, *tuple[int, ...]]]]\n"
        "    names: Mapping[int, Sequence[tuple[float, ...]]]\n",
    )
    assert '/** Of two. */\nexport type Kind = "a" | "b";\n' in text
    assert (
        "/** A part. */\nexport interface Part extends Base {\n  /** Counts. */\n  number: number | null;\n"
        in text
    )
    assert "  rows?: (Kind | [string, ...number[]])[];\n  names: Record<number, number[][]>;\n}\n" in text


def test_a_type_without_counterpart_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"set\[int\] has no counterpart"):
        written(tmp_path, "class Part(TypedDict):\n    numbers: set[int]\n")


def test_every_message_that_is_answered_is_in_what_a_page_can_ask(tmp_path):
    assert Inspector  # its methods answer
    write_protocol(ROOT)
    text = (ROOT / "frontend/src/base/wire.ts").read_text()
    asked = dict(re.findall(r'\{ type: "([\w-]+)"(.*) \}', text[text.index("export type Asked") :]))
    assert asked.keys() == MESSAGES.keys()
    for kind, message in MESSAGES.items():
        assert re.findall(r"; (\w+):", asked[kind]) == list(message.fields)
