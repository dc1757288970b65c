"""Names of Dagster that are not part of its public API, in one place.

Dagster may move or change any of these without notice. Each stands here with the reason why nothing public serves, so
that an upgrade of the pin begins with this list. No other module imports a private module of Dagster: the test of the
layout checks that.
"""

from __future__ import annotations

# The instance as Dagster's own commands open it: `DagsterInstance.get` does not read the file .env beside it.
from dagster._cli.utils import get_instance_for_cli as get_instance_for_cli

# The tags by which Dagster finds the data versions of an event and of its inputs, and its words for those that are not
# known. Only MaterializeResult takes a DataVersion, and an event that a sensor reports is no result. Dagster itself
# names the versions of inputs that were reported last, and the engine may have read newer ones.
from dagster._core.definitions.data_version import CODE_VERSION_TAG as CODE_VERSION_TAG
from dagster._core.definitions.data_version import (
    DATA_VERSION_IS_USER_PROVIDED_TAG as DATA_VERSION_IS_USER_PROVIDED_TAG,
)
from dagster._core.definitions.data_version import DATA_VERSION_TAG as DATA_VERSION_TAG
from dagster._core.definitions.data_version import DEFAULT_DATA_VERSION as DEFAULT_DATA_VERSION
from dagster._core.definitions.data_version import NULL_EVENT_POINTER as NULL_EVENT_POINTER
from dagster._core.definitions.data_version import get_input_data_version_tag as get_input_data_version_tag
from dagster._core.definitions.data_version import get_input_event_pointer_tag as get_input_event_pointer_tag

# The switches of sensors: `DagsterInstance.all_instigator_state` is asked with these and answers in them.
from dagster._core.definitions.run_request import InstigatorType as InstigatorType

# How a code server says that it has ended.
from dagster._core.errors import DagsterUserCodeUnreachableError as DagsterUserCodeUnreachableError

# The kinds of events of which SQLite storage keeps a second copy.
from dagster._core.events import ASSET_EVENTS as ASSET_EVENTS

# The run under which Dagster stores events that no run reported.
from dagster._core.instance import RUNLESS_RUN_ID as RUNLESS_RUN_ID

# The one kind of code location that has a process, whose death must be noticed.
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation as GrpcServerCodeLocation

# The states of the switches, and the moment of a sensor's newest tick.
from dagster._core.scheduler.instigation import InstigatorState as InstigatorState
from dagster._core.scheduler.instigation import InstigatorStatus as InstigatorStatus
from dagster._core.scheduler.instigation import SensorInstigatorData as SensorInstigatorData

# The newest result of a check: `event_log_storage.get_latest_asset_check_execution_by_key` answers in these.
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord as AssetCheckExecutionRecord
from dagster._core.storage.asset_check_execution_record import (
    AssetCheckExecutionRecordStatus as AssetCheckExecutionRecordStatus,
)

# The table of events in SQLite storage: Dagster has no way to delete one event.
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable as SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite import SqliteEventLogStorage as SqliteEventLogStorage

# The tags of a run that say of which partitions it is, and which code server it was launched with.
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_START_TAG as ASSET_PARTITION_RANGE_START_TAG
from dagster._core.storage.tags import GRPC_INFO_TAG as GRPC_INFO_TAG
from dagster._core.storage.tags import PARTITION_NAME_TAG as PARTITION_NAME_TAG

# A workspace that serves the UI. `dagster-webserver` makes one itself and leaves no place for the guard.
from dagster._core.workspace.context import WorkspaceProcessContext as WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget as WorkspaceFileTarget

# The daemon with a loop of our own: `dagster-daemon run` replaces all code servers each minute.
from dagster._daemon.controller import DagsterDaemonController as DagsterDaemonController
from dagster._daemon.controller import create_daemon_grpc_server_registry as create_daemon_grpc_server_registry
from dagster._daemon.controller import create_daemons_from_instance as create_daemons_from_instance

# The log lines of the UI in the form that all of Dagster's processes write.
from dagster._utils.log import configure_loggers as configure_loggers
