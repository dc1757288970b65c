"""Files of Parquet or CSV as a sink: a folder for each version."""
