"""pfl-research: SimulatedBackend, federated averaging, clipping and central Gaussian noise.

python pfl_peer.py WORKLOAD.npz    (in an environment with pfl[pytorch]; one round a line "go")
"""

import sys
import time

import torch
from common import Workload, wait_for_turn
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism


class Turns(TrainingProcessCallback):
    """Times a round, and waits for the next turn."""

    def __init__(self) -> None:
        self.began = 0.0

    def on_train_begin(self, *, model):
        """Before the first round."""
        wait_for_turn(None)
        self.began = time.process_time()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """After each."""
        go = wait_for_turn(time.process_time() - self.began)
        self.began = time.process_time()
        return not go, Metrics()


def main() -> None:
    """Rounds until told to stop."""
    work = Workload(sys.argv[1])
    settings, module = work.settings, work.model()
    module.loss = lambda inputs, targets: module.loss_of(inputs, targets)
    module.metrics = lambda inputs, targets: {}
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1e-9))
    order = iter(range(10**9))
    data = FederatedDataset(
        lambda number: Dataset(raw_data=list(work.devices[number])), lambda: next(order) % len(work.devices)
    )
    noise = GaussianMechanism(clipping_bound=settings["clip"], relative_noise_stddev=1e-6)
    backend = SimulatedBackend(
        training_data=data, val_data=None, postprocessors=[CentrallyAppliedPrivacyMechanism(noise)]
    )
    plan = NNAlgorithmParams(
        central_num_iterations=10**6,
        evaluation_frequency=10**6,
        train_cohort_size=len(work.devices),
        val_cohort_size=None,
    )
    device = NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=settings["rate"], local_batch_size=settings["batch"]
    )
    FederatedAveraging().run(plan, backend, model, device, callbacks=[Turns()])


if __name__ == "__main__":
    main()
