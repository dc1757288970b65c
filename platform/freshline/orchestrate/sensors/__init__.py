"""The two sensors by which Dagster schedules: one for what the engine keeps by itself, one for batch."""

from freshline.orchestrate.sensors.batch import batch_sensor
from freshline.orchestrate.sensors.supervisor import supervisor_sensor

__all__ = ["batch_sensor", "supervisor_sensor"]
