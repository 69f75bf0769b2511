"""One traced model and its switchable stack of transformations, without a screen."""

from typing import TYPE_CHECKING

from fxlab.base.first_use import on_first_use

if TYPE_CHECKING:
    from fxlab.session.errors import TransformationError as TransformationError
    from fxlab.session.loading import load_session as load_session
    from fxlab.session.session import Session as Session
else:
    __all__, __getattr__ = on_first_use(__name__)
