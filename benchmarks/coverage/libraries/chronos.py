"""Chronos' models of time series."""

from __future__ import annotations

from typing import Any

from chronos.chronos2 import Chronos2CoreConfig, Chronos2Model
from chronos.chronos_bolt import ChronosBoltModelForForecasting
from transformers import T5Config

from benchmarks.coverage.libraries.rows import Row, Values

_WIDTHS: dict[str, Any] = {"d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 2, "num_heads": 2}
_FORECAST: dict[str, Any] = {
    "context_length": 64,
    "prediction_length": 8,
    "input_patch_size": 8,
    "input_patch_stride": 8,
    "quantiles": [0.1, 0.5, 0.9],
    "use_reg_token": True,
}


def _bolt() -> Any:
    config = T5Config(vocab_size=2, num_decoder_layers=2, pad_token_id=0, decoder_start_token_id=0, **_WIDTHS)
    config.chronos_config = _FORECAST
    return ChronosBoltModelForForecasting(config)


def _second() -> Any:
    forecast = {**_FORECAST, "output_patch_size": 8, "use_arcsinh": True, "max_output_patches": 2}
    forecast = {key: value for key, value in forecast.items() if key != "prediction_length"}
    return Chronos2Model(Chronos2CoreConfig(vocab_size=2, chronos_config=forecast, **_WIDTHS))


_SERIES = {"context": Values(("batch", "length"))}
_SIZES = {"batch": 2, "length": 32}

ROWS = [
    Row("Chronos-Bolt", _bolt, _SERIES, _SIZES, {"length": 8}),
    Row("Chronos-2", _second, _SERIES, _SIZES, {"length": 8}),
]
