from installed_passes import install_passes

from fxlab.base.plugins import entry_points_of


def test_what_is_installed_meanwhile_is_found_and_files_are_read_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    group = "fxlab.transformations"
    assert entry_points_of(group) == []
    install_passes(tmp_path, "somebodys_passes", "", {"b": "somebodys_passes:b", "a": "somebodys_passes:a"})
    found = entry_points_of(group)
    assert [entry.name for entry in found] == ["a", "b"]
    assert entry_points_of(group) is found
