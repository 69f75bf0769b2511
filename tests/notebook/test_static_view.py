"""What a saved notebook shows where there is no kernel."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from typing import Any

from fxlab.notebook.static_view import MOST_OF_PICTURE, MOST_ROWS, static_view

SVG = '<svg xmlns="http://www.w3.org/2000/svg" class="fx-picture"><text>layer</text></svg>'
HOSTILE = "<img src=x onerror=alert(1)>&amp;</table><script>"


class Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.images: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.images += [str(value) for name, value in attrs if (tag, name) == ("img", "src")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def table(rows: list[list[Any]], total: int | None = None) -> dict[str, Any]:
    columns = [{"name": str(i), "title": f"column {i}", "kind": "text"} for i in range(len(rows[0]))]
    return {"columns": columns, "rows": rows, "total": len(rows) if total is None else total}


def test_it_holds_the_picture_and_the_tables() -> None:
    tables = {
        "outputs": {"text": "Outputs agree.", "table": table([["logits", 1.23456e-7, True, None]])},
        "nodes": {"text": "2 nodes changed.", "table": table([["a", ["x", "y"]], ["b", [2, 3]]])},
    }
    read = Reader(static_view("model", SVG, tables, "a1"))
    ((_, encoded),) = [image.split("base64,") for image in read.images]
    assert base64.b64decode(encoded).decode() == SVG
    assert read.tags.count("table") == 2
    assert [*read.words[1:3], "1.23e-07", "x, y", "2, 3"] == [
        "model", "Outputs agree.", *(w for w in read.words if w in ("1.23e-07", "x, y", "2, 3"))
    ]  # fmt: skip


def test_a_picture_that_is_too_large_for_a_notebook_is_left_out_in_words() -> None:
    read = Reader(static_view("model", SVG + "-" * MOST_OF_PICTURE, {}, "a1"))
    assert not read.images
    assert "too large" in " ".join(read.words)


def test_text_from_a_model_is_no_markup() -> None:
    tables = {"outputs": {"text": HOSTILE, "table": table([[HOSTILE]])}, "nodes": {"text": "", "table": None}}
    read = Reader(static_view(HOSTILE, SVG.replace("layer", HOSTILE), tables, "a1"))
    assert "script" not in read.tags
    assert len(read.images) == read.tags.count("img") == 1
    assert read.words.count(HOSTILE) == 3


def test_long_tables_are_cut_and_say_so() -> None:
    tables = {"outputs": {}, "nodes": {"text": "", "table": table([["n"]] * 200, total=4_000)}}
    read = Reader(static_view("model", SVG, tables, "a1"))
    assert read.tags.count("td") == MOST_ROWS
    assert "and 3,970 more rows" in read.words
    tables = {"outputs": {}, "nodes": {"text": "", "table": table([["n"]] * 3)}}
    assert "more rows" not in static_view("model", SVG, tables, "a1")
