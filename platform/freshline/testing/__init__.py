"""Tables under test: a temporary warehouse on the real runtime, for users' tests and for freshline's own.

```python
from freshline.testing import Lab

with Lab() as lab:
    lab.source("orders", "order_id BIGINT, customer STRING, amount DECIMAL(10,2)", primary_key=["order_id"])
    lab.sql("INSERT INTO orders VALUES (1, 'a', 5.00)")
    lab.declare("CREATE MATERIALIZED TABLE spend (PRIMARY KEY (customer)) FRESHNESS = INTERVAL '5' MINUTE "
                "AS SELECT customer, sum(amount) AS s FROM orders GROUP BY customer")
    outcome = lab.refresh("spend")
    assert lab.rows("spend") == [{"customer": "a", "s": Decimal("5.00")}]
    assert lab.diff("spend") == []
```
"""

from freshline.testing.channels import Service, check_channel
from freshline.testing.claims import ClaimsError
from freshline.testing.clock import LabClock
from freshline.testing.connectors import LandingFolder, System, check_connector
from freshline.testing.crash import Crash
from freshline.testing.formats import check_format
from freshline.testing.lab import Lab
from freshline.testing.lookups import AskedSystem, check_lookup
from freshline.testing.merges import MergedTable, check_merge
from freshline.testing.registrars import CatalogSystem, check_registrar
from freshline.testing.sinks import SinkSystem, check_sink

__all__ = [
    "AskedSystem",
    "CatalogSystem",
    "ClaimsError",
    "Crash",
    "Lab",
    "LabClock",
    "LandingFolder",
    "MergedTable",
    "Service",
    "SinkSystem",
    "System",
    "check_channel",
    "check_connector",
    "check_format",
    "check_lookup",
    "check_merge",
    "check_registrar",
    "check_sink",
]
