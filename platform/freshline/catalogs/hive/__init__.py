"""The registrar `hive`: tables in a Hive metastore."""
