# The scheduler's image: Airflow and the DAG files; no torch, no MLflow, no client data.
# Build from the project's root: docker build -f docker/airflow.Dockerfile .
FROM python:3.11-slim-bookworm

COPY requirements/airflow.lock /tmp/airflow.lock
RUN python -m venv /opt/airflow-env \
    && /opt/airflow-env/bin/pip install --no-cache-dir -r /tmp/airflow.lock \
    && /opt/airflow-env/bin/pip check \
    && useradd --uid 50000 --gid 0 --create-home tacit \
    && install -d -o 50000 -g 0 -m 0770 /opt/airflow /opt/airflow/logs

COPY dags /opt/tacit/dags
ENV PATH=/opt/airflow-env/bin:$PATH \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/tacit/dags \
    TACIT_HOME=/opt/tacit
WORKDIR /opt/tacit
USER 50000:0
ENTRYPOINT ["airflow"]
