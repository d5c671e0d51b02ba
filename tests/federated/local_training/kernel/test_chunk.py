import pytest
import torch

from federated.local_training import autotune
from federated.local_training.autotune import best_chunk
from federated.local_training.sums import most_steps_first
from pretrain.kernel.workspace import thread_space
from tests.helpers.text.typed_devices import keyboard, local, rows_of


@pytest.mark.slow
def test_the_fastest_chunk_is_taken(monkeypatch):
    config, model = local(), keyboard(True)
    with monkeypatch.context() as few:
        few.setitem(autotune.CANDIDATES, "cpu", (1, 4))
        assert best_chunk(model, config) in (1, 4)
    now = [0.0]
    taken = {1: 10.0, 2: 9.5, 4: 8.8, 8: 9.1, 16: 12.0, 32: 30.0}

    def trained(model, devices, local, clip, size):
        now[0] += taken[size]

    monkeypatch.setattr(autotune, "chunked_sum", trained)
    monkeypatch.setattr(autotune.time, "process_time", lambda: now[0])
    assert best_chunk(model, config) == 4
    taken[4] = 9.2  # not worth it that a device's low bits depend on others
    assert best_chunk(model, config) == 1


def test_memory_of_a_thread_is_used_again_and_grows():
    space = thread_space(torch.device("cpu"), torch.float32)
    small = space("test", 2, 3)
    assert space("test", 3, 2).data_ptr() == small.data_ptr()
    assert space("test", 40, 40).shape == (40, 40)
    assert thread_space(torch.device("cpu"), torch.float32) is space
    assert thread_space(torch.device("cpu"), torch.float64) is not space


def test_most_steps_come_first():
    config = local()
    steps = [rows.steps(config.batch_sentences, 1) for rows in most_steps_first(rows_of(13, config), config)]
    assert steps == sorted(steps, reverse=True)
    executed = sum(4 * max(steps[first : first + 4]) for first in range(0, len(steps), 4))
    # Steps that chunks of four devices execute, padding included; more devices waste less.
    assert executed <= 1.3 * sum(steps)
