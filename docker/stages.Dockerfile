# The workers' image: the stages' environment, and beside it Airflow's, whose Celery worker runs `tacit`.
# Also serves MLflow, which the stages' environment holds. Launch files are mounted, never baked in.
# Build from the project's root, for a CPU (--target cpu) or a GPU (--target gpu):
#   docker build -f docker/stages.Dockerfile --target cpu --build-arg GIT_COMMIT=$(git describe --always --dirty --abbrev=40 --exclude='*') .
FROM python:3.11-slim-bookworm AS airflow-packages
COPY requirements /requirements
RUN python -m venv /opt/airflow-env \
    && /opt/airflow-env/bin/pip install --no-cache-dir --require-hashes --no-deps \
        -r /requirements/hashes/airflow.txt -r /requirements/hashes/kubernetes.txt \
    && /opt/airflow-env/bin/pip check

# torch for a CPU is only on PyTorch's own index.
FROM python:3.11-slim-bookworm AS cpu-packages
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements /requirements
RUN python -m venv /opt/stages-env \
    && /opt/stages-env/bin/pip install --no-cache-dir --require-hashes --no-deps --index-url "$TORCH_INDEX" \
        -r /requirements/hashes/torch.txt \
    && /opt/stages-env/bin/pip install --no-cache-dir --require-hashes --no-deps -r /requirements/hashes/stages.txt \
    && /opt/stages-env/bin/pip check

# cuda.lock holds the further requirements of torch's build for CUDA.
FROM python:3.11-slim-bookworm AS gpu-packages
COPY requirements /requirements
RUN python -m venv /opt/stages-env \
    && /opt/stages-env/bin/pip install --no-cache-dir --require-hashes --no-deps \
        -r /requirements/hashes/stages.txt -r /requirements/hashes/torch.txt -r /requirements/hashes/cuda.txt \
    && /opt/stages-env/bin/pip check

FROM python:3.11-slim-bookworm AS project
RUN useradd --uid 50000 --gid 0 --create-home tacit \
    && install -d -o 50000 -g 0 -m 0770 /opt/airflow/state /opt/airflow/logs /opt/tacit/runs /mlflow
# Libraries that print report.pdf. The Debian archive keeps no old versions, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends fonts-dejavu-core libharfbuzz-subset0 libpango-1.0-0 libpangoft2-1.0-0 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=airflow-packages /opt/airflow-env /opt/airflow-env
WORKDIR /opt/tacit
COPY pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY pretrain pretrain
COPY discovery discovery
COPY federated federated
COPY evaluation evaluation
COPY reports reports
COPY pipeline pipeline
COPY tacit tacit
COPY dags dags
ARG GIT_COMMIT
# numba and matplotlib cache beside the code or in the home folder, both of which are read-only here. `tacit` and `mlflow`
# are found by name; a name that both environments have is Airflow's.
ENV PATH=/opt/airflow-env/bin:$PATH:/opt/stages-env/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/tmp/numba \
    MPLCONFIGDIR=/tmp/matplotlib \
    AIRFLOW_HOME=/opt/airflow/state \
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=/opt/airflow/logs \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/tacit/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/tacit/dags/plugins \
    TACIT_HOME=/opt/tacit \
    TACIT_BIN=/opt/stages-env/bin/tacit \
    TACIT_GIT_COMMIT=${GIT_COMMIT}

FROM project AS cpu
COPY --from=cpu-packages /opt/stages-env /opt/stages-env
RUN /opt/stages-env/bin/pip install --no-cache-dir --no-deps .
USER 50000:0
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["/opt/stages-env/bin/tacit", "--help"]
ENTRYPOINT ["airflow"]

FROM project AS gpu
COPY --from=gpu-packages /opt/stages-env /opt/stages-env
RUN /opt/stages-env/bin/pip install --no-cache-dir --no-deps .
USER 50000:0
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["/opt/stages-env/bin/tacit", "--help"]
ENTRYPOINT ["airflow"]
