"""Stages of ``torch.compile``: every pass that its compiler has run, with a switch."""

from fxlab.compiler.compile_session import CompileSession, compile_session

__all__ = ["CompileSession", "compile_session"]
