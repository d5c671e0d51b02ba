# The workers' image: the stages' environment, and beside it Airflow's, whose Celery worker runs `tacit`.
# Also serves MLflow, which the stages' environment holds. The same image runs on a CPU or a GPU.
# Build from the project's root: docker build -f docker/stages.Dockerfile --build-arg GIT_COMMIT=$(git rev-parse HEAD) .
FROM python:3.11-slim-bookworm

COPY requirements /opt/tacit/requirements
RUN python -m venv /opt/stages-env \
    && /opt/stages-env/bin/pip install --no-cache-dir -r /opt/tacit/requirements/stages.lock \
    && /opt/stages-env/bin/pip check \
    && python -m venv /opt/airflow-env \
    && /opt/airflow-env/bin/pip install --no-cache-dir -r /opt/tacit/requirements/airflow.lock \
    && /opt/airflow-env/bin/pip check \
    && useradd --uid 50000 --gid 0 --create-home tacit \
    && install -d -o 50000 -g 0 -m 0770 /opt/airflow /opt/airflow/logs /opt/tacit/runs /mlflow

WORKDIR /opt/tacit
COPY pyproject.toml README.md ./
COPY pretrain pretrain
COPY discovery discovery
COPY federated federated
COPY evaluation evaluation
COPY reports reports
COPY pipeline pipeline
COPY dags dags
RUN /opt/stages-env/bin/pip install --no-cache-dir --no-deps .

ARG GIT_COMMIT
ENV PATH=/opt/airflow-env/bin:$PATH \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/tacit/dags \
    TACIT_HOME=/opt/tacit \
    TACIT_BIN=/opt/stages-env/bin/tacit \
    TACIT_GIT_COMMIT=${GIT_COMMIT}
USER 50000:0
ENTRYPOINT ["airflow"]
