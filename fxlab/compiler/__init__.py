"""Stages of ``torch.compile``: every pass that its compiler has run, with a switch."""

from fxlab.compiler.compile_session import CompileSession, compile_session
from fxlab.compiler.scripts.record import CompileRecord, record_compile

__all__ = ["CompileRecord", "CompileSession", "compile_session", "record_compile"]
