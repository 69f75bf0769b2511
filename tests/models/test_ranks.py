"""A comparison of models that wait for other processes ends on all ranks, whatever each of them finds."""

import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent(
    """
    import sys, warnings
    warnings.simplefilter("ignore")
    import torch, torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    import fxlab

    rank, store, alike = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "alike"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)

    class Sums(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.gelu(x), functional.all_reduce(x.sum(), "sum", dist.group.WORLD)

    def approximate(graph_module):
        for node in graph_module.graph.nodes:
            if "gelu" in str(node.target):
                node.kwargs = {"approximate": "tanh"}

    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Sums(), (x,))
    session = fxlab.Session(program, x if alike or rank else torch.zeros(6, 8))
    session.add(fxlab.from_callable(approximate, name="approximate"))
    session.apply("approximate")
    try:
        print(session.verdict().status)
    except ValueError as error:
        print("refused", "different numbers of runs" in str(error))
    dist.destroy_process_group()
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param("alike", {"different"}, marks=pytest.mark.weekly),
        ("others", {"same bits", "refused True"}),
    ],
)
def test_ranks_that_find_something_else_do_not_wait_for_each_other(inputs, expected, tmp_path):
    from subprocess import PIPE, Popen

    script = tmp_path / "ranks.py"
    script.write_text(SCRIPT)
    store = str(tmp_path / "store")
    ranks = [
        Popen([sys.executable, script, str(rank), store, inputs], stdout=PIPE, text=True) for rank in (0, 1)
    ]
    try:
        said = {rank.communicate(timeout=240)[0].strip().splitlines()[-1] for rank in ranks}
    finally:
        for rank in ranks:
            rank.kill()
    assert said == expected
