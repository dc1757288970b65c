"""The sensors by which Dagster schedules: for what the engine keeps, for batch, to verify, and to tidy up."""

from freshline.dagster.sensors.batch import batch_sensor
from freshline.dagster.sensors.janitor import janitor_sensor
from freshline.dagster.sensors.supervisor import supervisor_sensor
from freshline.dagster.sensors.verification import verify_sensor

__all__ = ["batch_sensor", "janitor_sensor", "supervisor_sensor", "verify_sensor"]
