"""Calls of kernels are timed by the lines of a file that make them."""

import sys
import time

import pytest

from fxlab.compiler.code.kernel_times import seconds_of_kernels

CODE = """
import time

def once(seconds):
    time.sleep(seconds)

class Runner:
    def call(self, args):
        # [Provenance debug handles] quick:1
        once(0)
        time.sleep(0.05)  # no kernel
        for _ in range(2):
            # [Provenance debug handles] slow:2
            # [Provenance debug handles] together:3
            once(
                0.03
            )
        # [Provenance debug handles] last:4
        return once(0)

    def fail(self):
        # [Provenance debug handles] failing:5
        raise ValueError("of the code")
"""


def test_each_call_has_the_time_of_its_statement(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    space = {}
    exec(compile(CODE, str(path), "exec"), space)
    (seconds,) = seconds_of_kernels([str(path)], lambda: space["Runner"]().call([]), 2).values()
    assert {*seconds} == {"quick:1", "slow:2", "together:3", "last:4"}
    assert seconds["slow:2"] == seconds["together:3"] >= 0.03
    assert max(seconds["quick:1"], seconds["last:4"]) < 0.03


def test_the_tracing_of_others_is_put_back_and_files_without_kernels_have_no_times(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    space = {}
    exec(compile(CODE, str(path), "exec"), space)
    before = sys.gettrace()
    with pytest.raises(ValueError, match="of the code"):
        seconds_of_kernels([str(path)], space["Runner"]().fail, 1)
    assert sys.gettrace() is before
    other = tmp_path / "other.py"
    other.write_text("x = 1\n")
    assert seconds_of_kernels([str(other), str(tmp_path / "gone.py")], time.time, 1) == {}
