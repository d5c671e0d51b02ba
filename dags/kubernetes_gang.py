"""Hosts of a gang as an Indexed Job of Kubernetes, by the operator of Airflow's provider. **Untested: it never ran.**

    TACIT_GANG="/opt/airflow-env/bin/python /opt/tacit/dags/kubernetes_gang.py {hosts} {command}"

The Job's pods hold GPUs only while it trains. A Job is not retried: the first pod that fails ends it, and the stage's
next attempt creates another. The pod that runs this needs the service account ``gang`` of
``docker/gang/kubernetes.yaml``, which may create Jobs; the Job's own pods have no token, and mount only the runs.
"""

import signal
import sys
from pathlib import Path

from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator

POD = Path(__file__).with_suffix(".yaml")
# An Indexed Job's pods are called JOB-0, JOB-1, ...; the service "gang" gives them these names in DNS.
START = 'export PET_NODE_RANK="$JOB_COMPLETION_INDEX" PET_MASTER_ADDR="${HOSTNAME%-*}-0.gang"; exec "$@"'


def job_of(hosts: int, command: list[str], config_file: str | None = None) -> KubernetesJobOperator:
    """Build the operator of a gang whose hosts all run the command.

    Args:
      config_file: path of the cluster's configuration; None inside one of its pods.
    """
    return KubernetesJobOperator(
        task_id="gang",
        name="gang",
        namespace="tacit",
        pod_template_file=str(POD),
        cmds=["sh", "-c", START, "gang"],
        arguments=command,
        completion_mode="Indexed",
        completions=hosts,
        parallelism=hosts,
        backoff_limit=0,
        ttl_seconds_after_finished=86_400,
        kubernetes_conn_id=None,
        config_file=config_file,
        in_cluster=config_file is None,
    )


def main(hosts: int, command: list[str]) -> int:
    """Create the Job and wait for its end; the exit code is 1 if it failed."""
    operator = job_of(hosts, command)
    # Ending this process ends the Job.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        operator.job = operator.create_job(job_request_obj=operator.build_job_request_obj())
        name = operator.job.metadata.name
        operator.job = operator.hook.wait_until_job_complete(job_name=name, namespace="tacit", job_poll_interval=5)
    except BaseException:
        operator.on_kill()
        raise
    return int(bool(operator.hook.is_job_failed(job=operator.job)))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
