"""The job by which a person gives a table another freshness in Dagster, in the launchpad.

Without `from __future__ import annotations`: Dagster inspects the annotation of a step's context, and does not read it
from text.
"""

from typing import Any

from dagster import Failure, Field, JobDefinition, OpExecutionContext, String, in_process_executor, job, op

from freshline.dagster.project import FreshlineProject
from freshline.errors import FreshlineError
from freshline.manage.freshness import reset_freshness, set_freshness

NAME = "freshline_set_freshness"
CONFIG: dict[str, Any] = {
    "table": Field(String, description="The table's name, as in `sales.orders`."),
    "freshness": Field(
        String,
        default_value="",
        description="How fresh it is to be, as in `INTERVAL '5' MINUTE`, `5 minutes`, `PT5M`. Empty: as its file says.",
    ),
    "for": Field(
        String, default_value="", description="How long that holds, as in `2 hours`. Empty: until it is changed again."
    ),
    "cascade": Field(
        bool, default_value=False, description="Whether tables that drive it are taken along where they deliver later."
    ),
}


def freshness_job(project: FreshlineProject) -> JobDefinition:
    """The job NAME, whose one step changes one table as `freshline alter` does. Its run is who decided."""

    @op(name="set_freshness", config_schema=CONFIG)
    def change(context: OpExecutionContext) -> None:
        asked = context.op_config
        by = f"Dagster run {context.run_id}"
        cascade, settings = asked["cascade"], project.settings
        try:
            if asked["freshness"]:
                decision = set_freshness(
                    asked["table"],
                    asked["freshness"],
                    for_=asked["for"] or None,
                    cascade=cascade,
                    by=by,
                    project=settings,
                )
            elif asked["for"]:
                raise Failure("`for` is the time of a freshness: give a `freshness` too.", allow_retries=False)
            else:
                decision = reset_freshness(asked["table"], cascade=cascade, by=by, project=settings)
        except FreshlineError as error:
            raise Failure(str(error), metadata={"code": error.code}, allow_retries=error.retry_helps) from None
        for sentence in (decision.sentence, *decision.warnings):
            context.log.info(sentence)

    @job(
        name=NAME,
        description="Gives a table another freshness, for a time or until it is changed again. Its mode follows.",
        executor_def=in_process_executor,
    )
    def change_freshness() -> None:
        change()

    return change_freshness
