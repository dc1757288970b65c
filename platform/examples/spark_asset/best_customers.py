"""The ten customers who spent most, written by an asset of one's own beside the tables of freshline."""

import os

from dagster import AssetExecutionContext, Definitions, asset

from freshline.dagster import SparkResource

FOLDER = os.environ.get("BEST_CUSTOMERS", "best_customers")


@asset(deps=["spend"], group_name="marketing", kinds={"spark", "parquet"})
def best_customers(context: AssetExecutionContext, spark: SparkResource) -> None:
    """The ten customers who spent most."""
    best = spark.read_table("spend").orderBy("total", ascending=False).limit(10)
    best.write.mode("overwrite").parquet(FOLDER)
    context.add_output_metadata({"dagster/row_count": best.count()})


defs = Definitions(assets=[best_customers], resources={"spark": SparkResource()})
