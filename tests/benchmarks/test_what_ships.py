"""The launch that a measured population would ask for."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.utility.populations import PublicStart
from benchmarks.utility.what_ships import Request, trade_setting
from federated.config.planning import SmallLaunch, SmallTrade
from federated.config.training import LocalTrainingConfig, RuntimeConfig, ServerConfig
from federated.planning.rehearsal import Setting
from federated.planning.trade import TradeSetting
from pretrain.config import ModelConfig
from pretrain.model import build_model
from tests.helpers.text.typed_text import stream, text, vocabulary

REQUEST = Request(noise_multiplier=6.0, clip_norm=0.3, rounds=16, goal=200, devices=938, available=844, rho=0.5)


def staged(folder: Path, asked: Request) -> TradeSetting:
    words = vocabulary()
    model_config = ModelConfig(embedding_dim=4, hidden_dim=6, tied=True)
    model = build_model(model_config, len(words), 1)
    public = stream(text(folder), words)
    local = LocalTrainingConfig(learning_rate=0.5, batch_sentences=8, sequence_words=20, max_words=80)
    server, runtime = ServerConfig(learning_rate=1.0), RuntimeConfig(chunk_devices=16, checkpoint_every_rounds=100)
    small = SmallLaunch(report_goal=50, rounds=8, server_learning_rates=(1.0,), noise_to_signal=(0.01,))
    how = Setting(model, public, public, small, local, server, runtime, 1)
    limits = SmallTrade(shares=(0.1, 1.0), goals=(1.0,), held_out_words=100)
    return trade_setting(PublicStart(words, public, folder / "unread", model_config, 100), how, public, asked, limits)


@pytest.mark.parametrize(("available", "rest"), [(844, 4), (100_000, 16), (199, 1), (0, 1)])
def test_a_timer_rests_as_long_as_the_devices_allow(tmp_path: Path, available: int, rest: int) -> None:
    block = staged(tmp_path, replace(REQUEST, available=available)).mechanism
    assert (block.min_sep, block.max_participations) == (rest, -(-16 // rest))
    assert block.report_goal * block.min_sep <= max(available, block.report_goal)


def test_the_planner_is_asked_what_the_launch_asks(tmp_path: Path) -> None:
    made = staged(tmp_path, REQUEST)
    assert (made.terms.training_devices, made.terms.planning.max_report_goal) == (938, 200)
    assert made.terms.planning.target_rho == made.rho == REQUEST.rho
    assert made.counts is None
