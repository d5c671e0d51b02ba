"""Environment variables of ``tacit`` under Airflow: an allowlist of the worker's variables.

Guarantee: no process that holds client text gets a secret of Airflow's (the key of its tokens, its Fernet key, its
database, its queue), for any environment of the worker. Network access is restricted for the worker itself: see
``docs/privacy.md``. This file imports nothing, so that tests outside Airflow's environment can read it.
"""

import re
from collections.abc import Mapping

_ALLOWED = re.compile(
    # The machine: paths of programs, files, libraries and certificates, the number of threads, the kind of processor.
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TZ|TERM|TMPDIR|HOSTNAME|XDG_\w+|PYTHON\w+|LD_LIBRARY_PATH"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy"
    r"|(CUDA|NVIDIA|NCCL|GLOO|TORCH|ATEN|NPY|OMP|MKL|OPENBLAS|NUMBA|NUMEXPR|KMP|HF)_\w+|CUBLAS_WORKSPACE_CONFIG"
    r"|GLIBC_TUNABLES|MPLCONFIGDIR"
    # Variables of tacit, of OpenTelemetry, and of MLflow's client.
    r"|(?!TACIT_AIRFLOW|TACIT_CLIENTS|TACIT_MAIL_TO$|TACIT_WEBHOOK$)TACIT_\w+|OTEL_\w+"
    r"|MLFLOW_(TRACKING|HTTP)_\w+"
    # Users that can be reviewers, which `tacit check` reads.
    r"|AIRFLOW__CORE__(AUTH_MANAGER|SIMPLE_AUTH_MANAGER_USERS)"
)
# Object storage of client text: its server, and who may read it. A stage gets them without the prefix; those that have
# none are Airflow's own.
_CLIENTS = {
    name: name.partition("_CLIENTS_")[2]
    for name in (
        "TACIT_CLIENTS_AWS_ENDPOINT_URL",
        "TACIT_CLIENTS_AWS_REGION",
        "TACIT_CLIENTS_AWS_ACCESS_KEY_ID",
        "TACIT_CLIENTS_AWS_SECRET_ACCESS_KEY",
        "TACIT_CLIENTS_AWS_SESSION_TOKEN",
        "TACIT_CLIENTS_AWS_ROLE_ARN",
        "TACIT_CLIENTS_AWS_WEB_IDENTITY_TOKEN_FILE",
        "TACIT_CLIENTS_GOOGLE_APPLICATION_CREDENTIALS",
    )
}
# The account that reads answers from Airflow; for ``tacit review`` alone.
_READER = re.compile(r"TACIT_AIRFLOW\w+")

# Further variables of Airflow's worker: its DAGs, its queue, and the API that gives it a token for each task. It needs
# no key that signs tokens, and no database.
_WORKER = re.compile(
    r"AIRFLOW_HOME|AIRFLOW__API__(BASE_URL|HOST|PORT)|AIRFLOW__METRICS__OTEL_ON|AIRFLOW__OPERATORS__DEFAULT_(OWNER|QUEUE)"
    r"|AIRFLOW__CORE__(DAGS_FOLDER|PLUGINS_FOLDER|LOAD_EXAMPLES|PARALLELISM|EXECUTOR|EXECUTION_API_SERVER_URL)"
    r"|AIRFLOW__CELERY__(BROKER_URL|RESULT_BACKEND)|AIRFLOW__CELERY_BROKER_TRANSPORT_OPTIONS__VISIBILITY_TIMEOUT"
    r"|AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL|AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL"
    r"|AIRFLOW__LOGGING__BASE_LOG_FOLDER|TACIT_MAIL_TO|TACIT_WEBHOOK|DUMB_INIT_SETSID"
)


def of_stage(worker: Mapping[str, str]) -> dict[str, str]:
    """Select the worker's variables for a stage."""
    return _of_tacit(worker) | {_CLIENTS[name]: value for name, value in worker.items() if name in _CLIENTS}


def of_worker(variables: Mapping[str, str]) -> dict[str, str]:
    """Select the variables that a worker may have."""
    own = {name: value for name, value in variables.items() if _WORKER.fullmatch(name) or name in _CLIENTS}
    return of_review(variables) | own


def of_review(worker: Mapping[str, str]) -> dict[str, str]:
    """Select the worker's variables for a command that reads an answer from Airflow."""
    return _of_tacit(worker) | {name: value for name, value in worker.items() if _READER.fullmatch(name)}


def _of_tacit(worker: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in worker.items() if _ALLOWED.fullmatch(name)}
