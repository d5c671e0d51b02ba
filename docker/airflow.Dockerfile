# The scheduler's image: Airflow and the DAG files; no torch, no MLflow, no client data. Launch files are mounted.
# Build from the project's root: docker build -f docker/airflow.Dockerfile .
FROM python:3.11-slim-bookworm AS packages
COPY requirements /requirements
RUN python -m venv /opt/airflow-env \
    && /opt/airflow-env/bin/pip install --no-cache-dir --require-hashes --no-deps \
        -r /requirements/hashes/airflow.txt -r /requirements/hashes/kubernetes.txt \
    && /opt/airflow-env/bin/pip check

FROM python:3.11-slim-bookworm
RUN useradd --uid 50000 --gid 0 --create-home tacit \
    && install -d -o 50000 -g 0 -m 0770 /opt/airflow/state /opt/airflow/logs
COPY --from=packages /opt/airflow-env /opt/airflow-env
COPY dags /opt/tacit/dags
COPY docker/entrypoint.sh /entrypoint
ENV PATH=/opt/airflow-env/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    AIRFLOW_HOME=/opt/airflow/state \
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=/opt/airflow/logs \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/tacit/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/tacit/dags/plugins \
    TACIT_HOME=/opt/tacit
WORKDIR /opt/tacit
USER 50000:0
# Each service of compose.yaml and of the pods has its own health check; this one is for the image on its own.
HEALTHCHECK --interval=60s --timeout=30s --start-period=60s CMD ["airflow", "db", "check"]
ENTRYPOINT ["/entrypoint"]
