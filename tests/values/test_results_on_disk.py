"""Large results of operations in temporary files."""

import errno

import pytest
import torch

from fxlab.values import results_on_disk
from fxlab.values.results_on_disk import on_disk

WEIGHT = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))


def written(weight):
    made = weight.clone()
    part = made[1:3]
    part.mul_(2)
    return made.t(), part


@pytest.mark.parametrize(
    "operation",
    [
        lambda weight: (torch.cat([weight, weight * 2]), weight),
        lambda weight: torch.linalg.qr(weight),
        lambda weight: weight.double().t().contiguous().unbind(),
        lambda weight: (weight.to(torch.bfloat16), weight.to_sparse(), weight.sum()),
        written,
    ],
)
def test_results_are_those_of_memory_and_share_it_alike(operation, monkeypatch, tmp_path):
    monkeypatch.setattr(results_on_disk, "_LARGE", 8)
    monkeypatch.setattr(results_on_disk.tempfile, "tempdir", str(tmp_path))
    expected = operation(WEIGHT.clone())
    with on_disk():
        found = operation(WEIGHT.clone())
    assert all(torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(found, expected, strict=True))
    places = [(t.stride(), t.untyped_storage()) for t in found if t.layout is torch.strided]
    others = [(t.stride(), t.untyped_storage()) for t in expected if t.layout is torch.strided]
    assert [stride for stride, _ in places] == [stride for stride, _ in others]
    assert len({memory._cdata for _, memory in places}) == len({memory._cdata for _, memory in others})
    assert not list(tmp_path.glob("fxlab-*"))


def test_a_full_disk_is_an_error_that_names_the_folder(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results_on_disk, "_LARGE", 8)
    monkeypatch.setattr(results_on_disk.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(results_on_disk.os, "posix_fallocate", full)
    with on_disk(), pytest.raises(OSError, match=f"{tmp_path} lacks 384 bytes.*set TMPDIR"):
        WEIGHT.double()
    assert not list(tmp_path.glob("fxlab-*"))
