"""How long nodes take."""

from fxlab.overlays.overlay import Source

TIME = Source("time", "Time", lambda subject: subject.profile["time"].to_dict(), unit="s")
