"""A ceiling for the lines of each room, which only falls: a feature pays with lines of its room."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CEILINGS = tomllib.loads((ROOT / "ceilings.toml").read_text())
ROOMS = [(folder, room) for folder, rooms in CEILINGS.items() for room in rooms]
SUFFIXES = {".py", ".pyi", ".ts", ".css"}
GENERATED = {"wire.ts"}
SLACK = 0.03
"""The share that a room may be below its ceiling before that has to follow."""


def lines_in(folder: str, room: str) -> int:
    """Return the lines of a room; ``files`` are those beside the rooms."""
    place = ROOT / folder
    found = place.glob("*") if room == "files" else (place / room).rglob("*")
    own = (file for file in found if file.suffix in SUFFIXES and "static" not in file.parts)
    return sum(len(file.read_text().splitlines()) for file in own if file.name not in GENERATED)


@pytest.mark.parametrize(("folder", "room"), ROOMS)
def test_a_room_is_no_larger_than_its_ceiling_which_follows_it_down(folder, room):
    lines, ceiling = lines_in(folder, room), CEILINGS[folder][room]
    assert lines <= ceiling, "Take lines away in this room, or say in the commit why its ceiling rises."
    assert lines >= ceiling * (1 - SLACK), f"Lower the ceiling in ceilings.toml to {lines}."


@pytest.mark.parametrize("folder", CEILINGS)
def test_each_room_has_a_ceiling(folder):
    rooms = [*filter(Path.is_dir, (ROOT / folder).iterdir())]
    known = {each.name for each in rooms if any(file.suffix in SUFFIXES for file in each.rglob("*"))}
    assert known | {"files"} == {*CEILINGS[folder]}
