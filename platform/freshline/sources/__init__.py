"""Systems outside: each connector reads one kind, each format decodes one kind of record.

A connector has a light half, which declarations need (`connector.py`, `position.py`), and a reader, which needs Spark.
The rest of freshline knows neither by name: it finds them through `freshline.values.registry`.
"""
