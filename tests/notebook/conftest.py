from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from inspected import Page, make_session

from fxlab import Session
from fxlab.notebook.inspector import Inspector


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def session() -> Session:
    return make_session()


@pytest.fixture
def page(session: Session) -> Iterator[Page]:
    """A page that shows ``session``."""
    inspector = Inspector(session)
    yield Page(inspector)
    inspector.close()
