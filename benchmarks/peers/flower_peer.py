"""Flower: the Ray simulation engine, one actor; every client clips its own update, the server averages.

    python flower_peer.py WORKLOAD.npz    (in an environment with flwr[simulation]; one round a line "go")

Times are of the whole process tree, start-up and the first round left out by who reads them.
"""

import os
import sys
from pathlib import Path

import numpy as np
import psutil
import torch
from common import Workload, wait_for_turn
from flwr.client import ClientApp, NumPyClient
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation

PATH = str(Path(sys.argv[1]).absolute()) if len(sys.argv) > 1 else ""
_workloads: dict[str, Workload] = {}


def tree_seconds() -> float:
    """CPU seconds of this process and all that it started."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def make_client(path: str):
    """A client app that trains one device a call, as Flower's PyTorch quick start does."""

    class Device(NumPyClient):
        def __init__(self, number: int) -> None:
            self.number = number

        def fit(self, parameters, config):
            if path not in _workloads:
                torch.set_num_threads(1)
                _workloads[path] = Workload(path)
            work = _workloads[path]
            module, settings = work.model(), work.settings
            state = {name: torch.from_numpy(value) for name, value in zip(work.weights, parameters, strict=True)}
            module.load_state_dict(state)
            optimizer = torch.optim.SGD(module.parameters(), lr=settings["rate"])
            inputs, targets = work.devices[self.number]
            for first in range(0, len(inputs), settings["batch"]):
                rows = slice(first, first + settings["batch"])
                optimizer.zero_grad()
                module.loss_of(inputs[rows], targets[rows]).backward()
                optimizer.step()
            update = [
                after.detach().numpy() - before for after, before in zip(module.parameters(), parameters, strict=True)
            ]
            norm = float(np.sqrt(sum(float(np.square(part).sum()) for part in update)))
            factor = min(1.0, settings["clip"] / norm)
            return [before + factor * part for before, part in zip(parameters, update, strict=True)], 1, {}

    def client(context):
        return Device(int(context.node_config["partition-id"])).to_client()

    return ClientApp(client_fn=client)


class Turns(FedAvg):
    """Times a round, and waits for the next turn."""

    began = 0.0

    def configure_fit(self, server_round, parameters, client_manager):
        """Before each round."""
        client_manager.wait_for(self.min_available_clients)
        if server_round == 1:
            wait_for_turn(None)
            self.began = tree_seconds()
        return super().configure_fit(server_round, parameters, client_manager)

    def aggregate_fit(self, server_round, results, failures):
        """After each."""
        if failures:
            print(failures[:1], file=sys.stderr)
        mean = super().aggregate_fit(server_round, results, failures)
        if not wait_for_turn(tree_seconds() - self.began):
            # Nothing has to be saved, and Flower's own end takes long.
            for process in psutil.Process().children(recursive=True):
                process.kill()
            os._exit(0)
        self.began = tree_seconds()
        return mean


def main() -> None:
    """Rounds until told to stop."""
    work = Workload(PATH)
    count = len(work.devices)
    start = ndarrays_to_parameters(list(work.weights.values()))

    def server(context):
        strategy = Turns(
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=count,
            min_available_clients=count,
            initial_parameters=start,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=10**6))

    run_simulation(
        server_app=ServerApp(server_fn=server),
        client_app=make_client(PATH),
        num_supernodes=count,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}},
    )


if __name__ == "__main__":
    main()
